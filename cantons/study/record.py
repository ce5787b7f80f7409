"""One evaluation as one flat row, and as one column per client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cantons.data import Federation
from cantons.metrics import nbytes, statistics
from cantons.protocol import Problem, PyTree, State

Row = dict[str, Any]
Columns = dict[str, Any]


def sides(data: Federation) -> list[str]:
    """Whom an evaluation scores: the clients, and the new ones if there are any."""
    return ["clients"] if data.new is None else ["clients", "new"]


def scored(problem: Problem, data: Federation, scores: Mapping[str, Any]) -> tuple[Row, Columns]:
    """`scores` are {side: {set: {model: {metric: a number per client}}}}; names in the row are joined by dots."""
    row: Row = {}
    columns: Columns = {"client": data.clients.names}
    for side, sets in scores.items():
        population = data.clients if side == "clients" else data.new
        assert population is not None
        sizes = {"test": population.test.sizes, "train": population.train.sizes}
        if "validation" in sets and data.validation is not None:
            sizes["validation"] = data.validation.sizes
        for name, examples in sizes.items():
            for which in ("personal", "shared"):
                for metric, values in sets[name][which].items():
                    label = f"{'' if side == 'clients' else 'new_'}{name}.{which}.{metric}"
                    found = statistics(values, np.asarray(examples), metric in problem.maximise)
                    row |= {f"{label}.{statistic}": value for statistic, value in found.items()}
                    if side == "clients":
                        columns[label] = values
    return row, columns


def traffic_of(message: PyTree, upload: PyTree) -> dict[str, int]:
    return {"down_bytes_per_message": nbytes(message), "up_bytes_per_upload": nbytes(upload)}


def travelled(data: Federation, state: State, traffic: Mapping[str, int]) -> tuple[Row, Columns]:
    """What went up and down so far, and what of it was lost."""
    downloads, uploads, rejected = (np.asarray(part) for part in (state.downloads, state.uploads, state.rejected))
    down = downloads.astype(np.int64) * traffic["down_bytes_per_message"]
    up = uploads.astype(np.int64) * traffic["up_bytes_per_upload"]
    row = {
        "uploads": int(uploads.sum()), "bytes_down": int(down.sum()), "bytes_up": int(up.sum()),
        "bytes_per_client": int(down.sum() + up.sum()) / data.population,
        "rejected_uploads": int(rejected.sum()),
        "rejected_clients": [data.clients.names[index] for index in np.flatnonzero(rejected)],
        "skipped_rounds": int(state.skipped),
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
