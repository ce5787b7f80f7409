"""The table of a comparison: one row per method, as numbers and as words."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from cantons.display import score
from cantons.reporting.collect import Group, Run, diagnostics, headline, metrics, scored_set, test_sets
from cantons.study.dotted_keys import short_keys

COLUMNS = {  # the title of each, and what it means where that is not plain
    "method": ("method", ""),
    "seeds": ("seeds", ""),
    "chosen": ("chosen", "what was best for it where it was tuned"),
    "personal": ("personal", "each client's own model"),
    "worst10": ("worst 10%", "the tenth of the clients who fare worst with it"),
    "shared": ("shared", "the server's model alone"),
    "new_clients": ("new clients", "personalised models of clients who took no part in training"),
    "online": ("online", "each client's own model on every example it met, before it learned from it"),
    "reward": ("reward", "the mean of what the chosen actions brought"),
    "estimated_reward": ("reward (DR)", "what a client's best predicted actions would bring on its test rows, by the "
                                        "doubly robust estimate"),
    "regret": ("regret", "what was charged beyond the best in hindsight"),
    "bound": ("bound", "the most regret that the theorem allows"),
    "kib_per_client": ("KiB/client", "sent and received in all, averaged over all clients, drawn or not"),
    "ms_per_round": ("ms/round", "the median, without evaluations and compilation"),
}

REGRETS = ("online.collective_regret", "online.regret", "online.personal.regret.mean")  # a run has one of them
DEVIATING = ("worst10", "shared", "new_clients")  # columns with a deviation of their own, beside the headline's
BESIDE = ("metric", "headline", "spread", "error", *(f"{key}_spread" for key in DEVIATING))  # about other columns
BOUNDS = ("online.collective_bound", "online.regret_bound")


def comparison_rows(groups: Sequence[Group],
                    chosen: Mapping[str, Mapping[str, Any]] | None = None) -> list[dict[str, Any]]:
    """One row per method: its score at the end, as the mean over seeds, and what it cost.

    "metric" says what the scores are, "headline" which column methods are compared by: "personal", or where clients
    have no test rows "online" or a test set. "spread" is its standard deviation over seeds, "worst10_spread" and its
    like are those of other columns; "error" is the standard error of "personal" where a sample of the clients was
    scored, by one seed: the spread over several has it inside, because each draws its own sample. A number that the
    runs do not have, or that is not finite, is None. Last come, under their own names, the shared model's scores on
    test sets that are nobody's in particular, and diagnostics.
    `chosen` has the values that were tuned, by the groups' labels.
    """
    metric, place = metrics(groups)[0], scored_set(groups)
    tuned = _in_words(groups, chosen or {})
    tested = place == "test"
    rows = []
    for group in groups:
        found = group.final(headline(groups))
        others = {"worst10": f"{place}.personal.{metric}.worst10", "shared": f"test.shared.{metric}.mean",
                  "new_clients": f"new_test.personal.{metric}.mean"}
        rows.append({
            "method": group.label, "seeds": len(group.runs), "chosen": tuned.get(group.label),
            "metric": metric, "headline": "personal" if tested else place,
            "personal": _mean(found) if tested else None, "spread": _spread(found),
            **{f"{key}_spread": _spread(group.final(others[key])) if tested or key == "worst10" else None
               for key in DEVIATING},
            "error": _mean(group.final(f"test.personal.{metric}.error")) if tested and len(found) == 1 else None,
            **{key: _mean(group.final(column)) if tested or key == "worst10" else None
               for key, column in others.items()},
            "online": _mean(group.final(f"online.personal.{metric}.mean")),
            "reward": _mean(group.final("online.personal.reward.mean")),
            "estimated_reward": _mean(group.final("test.personal.reward_dr.mean")),
            "regret": _first(group, REGRETS),
            "bound": _first(group, BOUNDS),
            "kib_per_client": _mean(group.final("bytes_per_client") / 1024),
            "ms_per_round": _mean(np.array([1000 * _seconds_per_round(run) for run in group.runs])),
            **{name: _mean(group.final(key)) for (name, each), key in test_sets(groups).items() if each == metric},
            **{name: _mean(group.final(key)) for name, key in diagnostics(groups).items()},
        })
    return rows


def cells(rows: Sequence[Mapping[str, Any]], without: Collection[str] = ()) -> list[list[str]]:
    """The rows in words, the titles first; a column for which no method has a number is left out.

    So is a diagnostic that is 0 for all of them.
    """
    shown = [key for key in _shown(rows) if key not in without]
    return [[_title(key) for key in shown], *([_words(row, key) for key in shown] for row in rows)]


def meaning_of_spread(rows: Sequence[Mapping[str, Any]]) -> str:
    """What stands behind "±" in these rows; nothing if it stands nowhere."""
    words = {"spread": "the standard deviation over seeds", "error": "the standard error of a sample of the clients"}
    return " or ".join(meaning for key, meaning in words.items() if any(row[key] is not None for row in rows))


def legend(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the columns mean."""
    return "; ".join(": ".join(COLUMNS[key]) for key in _shown(rows) if key in COLUMNS and COLUMNS[key][1])


def _shown(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns in their order; what methods are compared by comes first, and the worst tenth is of that."""
    own, order = [key for key in rows[0] if key not in COLUMNS and key not in BESIDE], list(COLUMNS)
    if rows[0]["headline"] == "online":
        order.insert(order.index("worst10"), order.pop(order.index("online")))
    return [*(key for key in order if any(row[key] is not None for row in rows)),
            *(key for key in own if any(row[key] for row in rows))]  # what counts nothing anywhere tells nothing


def _title(key: str) -> str:
    return COLUMNS[key][0] if key in COLUMNS else key


def _words(row: Mapping[str, Any], key: str) -> str:
    value = row[key]
    if value is None:
        return "–"
    if not isinstance(value, float):
        return str(value)
    if key in ("kib_per_client", "ms_per_round"):
        return f"{value:,.{0 if value >= 100 else 1 if key == 'kib_per_client' else 2}f}"
    around = (row["error"] if row["spread"] is None else row["spread"]) if key == row["headline"] else row.get(
        f"{key}_spread")
    return score(value) + (f" ± {score(around, beside=value)}" if around is not None else "")


def _seconds_per_round(run: Run) -> float:
    timed = run.column("seconds_per_round")
    timed = timed[np.isfinite(timed)]
    return float(np.median(timed)) if len(timed) else math.nan


def _first(group: Group, keys: Sequence[str]) -> float | None:
    return next((found for key in keys if (found := _mean(group.final(key))) is not None), None)


def _in_words(groups: Sequence[Group], chosen: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """What was tuned for each method, as in "step_size=0.1, tuner.step_size=0.5"."""
    names = short_keys(dict.fromkeys(key for values in chosen.values() for key in values))
    return {label: ", ".join(f"{names[key]}={value}" for key, value in values.items())
            for label, values in chosen.items() if values}


def _spread(values: np.ndarray) -> float | None:
    return _finite(values.std(ddof=1)) if len(values) > 1 else None


def _mean(values: np.ndarray) -> float | None:
    return _finite(values.mean())


def _finite(value: np.floating) -> float | None:
    return float(value) if np.isfinite(value) else None
