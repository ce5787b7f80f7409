"""One evaluation as one flat row, and as one column per client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from cantons.data import Federation, Population
from cantons.metrics import nbytes, standard_errors, statistics
from cantons.protocol import Evaluation, Problem, Progress, PyTree

Row = dict[str, Any]
Columns = dict[str, Any]


class Seen(NamedTuple):
    """What the evaluation before has told already; a checkpoint keeps it, in words of JSON."""

    rejected: int = 0
    skipped: int = 0
    reported: int = 0
    reports: Mapping[str, float] = {}
    arrivals: int = 0
    delays: int = 0


def score_row(problem: Problem, data: Federation, scores: Mapping[str, Any],
              scored: Mapping[str, np.ndarray], liars: np.ndarray | None = None) -> tuple[Row, Columns]:
    """`scores` are {side: {set: {model: {metric: a number per client}}}}; names in the row are joined by dots.

    Of a side in `scored`, only these clients have numbers. The row is over those who do not lie.
    """
    row: Row = {}
    columns: Columns = {"client": data.clients.names}
    if liars is not None:
        columns["liar"] = liars.astype(int)
    for side, sets in scores.items():
        population = data.clients if side == "clients" else data.new
        assert population is not None
        sizes = {"test": population.test.sizes, "train": population.train.sizes}
        if "validation" in sets and data.validation is not None:
            sizes["validation"] = data.validation.sizes
        lying = liars if side == "clients" else None
        for name, examples in sizes.items():
            for which in ("personal", "shared"):
                for metric, values in sets[name][which].items():
                    label = f"{'' if side == 'clients' else 'new_'}{name}.{which}.{metric}"
                    found = _summarise(values, honest(examples, lying), metric in problem.maximise, scored.get(side))
                    row |= {f"{label}.{statistic}": value for statistic, value in found.items()}
                    row |= _group_means(population, label, values if lying is None else np.where(lying, np.nan, values))
                    if side == "clients":
                        columns[label] = values
    return row, columns | _group_column(data.clients)


def new_client_columns(data: Federation, found: Evaluation) -> Columns:
    """The scores, diagnostics and sizes of each new client; nothing where there are none."""
    if data.new is None:
        return {}
    columns: Columns = {"client": data.new.names}
    for name in ("test", "train"):
        for which, metrics in found.scores["new"][name].items():
            columns |= {f"{name}.{which}.{metric}": values for metric, values in metrics.items()}
    columns |= {f"clients.{name}": values for name, values in found.clients.get("new", {}).items()}
    sizes = {"train_examples": data.new.train.sizes, "test_examples": data.new.test.sizes}
    return columns | _group_column(data.new) | sizes


def honest(examples: Any, liars: np.ndarray | None) -> np.ndarray:
    """How many examples of each client count in a statistic: none of a liar's."""
    return np.asarray(examples) if liars is None else np.where(liars, 0, examples)


def _summarise(values: np.ndarray, examples: np.ndarray, larger_is_better: bool,
               chosen: np.ndarray | None) -> dict[str, float]:
    """One metric over the clients with examples, or over a sample of them, which has standard errors."""
    if chosen is None:
        return statistics(values, examples, larger_is_better)
    values, sampled = values[chosen], examples[chosen]
    return statistics(values, sampled, larger_is_better) | standard_errors(values, sampled, int((examples > 0).sum()))


def _group_column(population: Population) -> Columns:
    """The group of each client, where they are of several."""
    if population.groups is None:
        return {}
    names, numbers = population.groups
    return {"group": [names[number] for number in numbers]}


def _group_means(population: Population, label: str, values: np.ndarray) -> Row:
    """For each group the mean over its clients, as "GROUP.test.personal.accuracy"."""
    if population.groups is None:
        return {}
    found = {name: values[population.groups.numbers == number] for number, name in enumerate(population.groups.names)}
    return {f"{name}.{label}": float(np.nanmean(of_group, dtype=np.float64)) for name, of_group in found.items()
            if np.isfinite(of_group).any()}


def online_row(problem: Problem, progress: Progress, liars: np.ndarray | None = None) -> tuple[Row, Columns]:
    """What each client was charged so far, on average, for the examples of a stream before it learned from them."""
    row: Row = {}
    columns: Columns = {}
    if progress.met is None:
        return row, columns
    met = progress.met - progress.rejected  # who abstained was not charged
    for metric, totals in progress.charged.items():
        values = np.asarray(totals) / np.maximum(met, 1)
        found = statistics(np.where(met > 0, values, np.nan), honest(met, liars), metric in problem.maximise)
        row |= {f"online.personal.{metric}.{statistic}": value for statistic, value in found.items()}
        columns[f"online.personal.{metric}"] = values
    return row, columns


def diagnostics_row(data: Federation, found: Evaluation, before: Seen, scored: Mapping[str, np.ndarray],
                    liars: np.ndarray | None = None) -> tuple[Row, Columns]:
    """The numbers that algorithms and rules give of themselves: "server.", "clients." and "rule." before their names.

    What a rule reports is averaged over the rounds since the evaluation `before`.
    """
    row: Row = {f"server.{name}": float(value) for name, value in found.server.items()}
    row |= {f"{name}.shared.{metric}": value for name, scores in found.sets.items() for metric, value in scores.items()}
    columns: Columns = {}
    for name, values in found.clients.get("clients", {}).items():
        summary = _summarise(np.asarray(values), honest(data.train.sizes, liars), False, scored.get("clients"))
        row |= {f"clients.{name}.{statistic}": value for statistic, value in summary.items()}
        columns[f"clients.{name}"] = values
    now = found.progress
    for name, mean in now.reports.items():
        fresh = now.reported - before.reported
        total = now.reported * mean - before.reported * before.reports.get(name, 0.0)
        row[f"rule.{name}"] = total / fresh if fresh else None
    if now.outvoted is not None and now.outvoted.any():
        row["rule.rejected_uploads"] = int(now.outvoted.sum())
        columns["rule.rejected"] = now.outvoted
        if liars is not None:
            row |= {"rule.rejected_liars": int(now.outvoted[liars].sum()),
                    "rule.rejected_honest": int(now.outvoted[~liars].sum())}
    return row, columns


def events_row(progress: Progress, before: Seen) -> tuple[Row, Columns]:
    """Of an asynchronous run: its virtual time, the mean delay since the evaluation `before`, the longest so far."""
    found = progress.events
    if found is None:
        return {}, {}
    fresh = found.arrivals - before.arrivals
    return {"clock.time": found.time, "clock.delay.mean": (found.delays - before.delays) / fresh if fresh else None,
            "clock.delay.max": found.longest}, {"clock.jobs": progress.uploads}


def traffic_of(message: PyTree, upload: PyTree) -> dict[str, int]:
    return {"down_bytes_per_message": nbytes(message), "up_bytes_per_upload": nbytes(upload)}


def traffic_row(data: Federation, progress: Progress, traffic: Mapping[str, int]) -> tuple[Row, Columns]:
    """What went up and down so far, and what of it was lost."""
    down = progress.downloads.astype(np.int64) * traffic["down_bytes_per_message"]
    up = progress.uploads.astype(np.int64) * traffic["up_bytes_per_upload"]
    rejected = progress.rejected if progress.left_out is None else progress.rejected + progress.left_out
    row = {
        "uploads": int(progress.uploads.sum()), "bytes_down": int(down.sum()), "bytes_up": int(up.sum()),
        "bytes_per_client": int(down.sum() + up.sum()) / data.population,
        "rejected_uploads": int(rejected.sum()),
        "rejected_clients": [data.clients.names[index] for index in np.flatnonzero(rejected)],
        "skipped_rounds": progress.skipped,
    }
    columns = {"train_examples": data.train.sizes, "test_examples": data.test.sizes, "bytes_down": down,
               "bytes_up": up, "rejected": rejected}
    return row, columns


def summary_of(study: Mapping[str, Any], data: Federation, history: list[Row], traffic: Mapping[str, int],
               **more: Any) -> dict[str, Any]:
    """The end of a run in one table."""
    timed = [row["seconds_per_round"] for row in history if row.get("seconds_per_round")]
    return {"study": study["name"], "rounds": history[-1]["round"], "test_set": data.test_set, "final": history[-1],
            **traffic, "median_seconds_per_round": float(np.median(timed)) if timed else None, **more}
