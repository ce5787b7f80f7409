"""Methods held against a reference, pair by pair (the same seed, the same client), and what the differences allow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cantons.display import score
from cantons.metrics import LEVEL, UPWARDS, Paired, adjust_for_several, fewest_pairs, paired
from cantons.reporting.collect import SETS, Group, Run, client_names, headline, metrics, scored_set

SAME = 1e-6  # of the largest score: scores closer than this are equal, because they are written in single precision


class Difference(NamedTuple):
    """One method minus the reference; None where they have no such numbers in common."""

    method: str
    reference: str
    seeds: Paired | None  # of the means over clients, by seed
    clients: Paired | None  # of each client's mean over seeds
    worst10: Paired | None  # of the worst tenth of the clients, by seed
    new_clients: Paired | None  # of the means over new clients, by seed
    seeds_p: float | None = None  # by Holm's correction for so many methods; None: too few pairs for any test
    clients_p: float | None = None
    alike: int = 0  # so many seeds gave the same scores and count as one pair; 0: chance made them differ


def find_differences(groups: Sequence[Group], reference: Group) -> list[Difference]:
    """Hold every other method against the reference, by the number that methods are compared by."""
    place, metric = scored_set(groups), metrics(groups)[0]
    found = []
    for group in groups:
        if group is reference:
            continue
        by_seed = partial(_over_seeds, _common(group, reference))
        by_clients = f"{place}.personal.{metric}" if place in SETS else None
        found.append(Difference(
            group.label, reference.label, by_seed(headline(groups)),
            None if by_clients is None else _over_clients(_common(group, reference), by_clients),
            by_seed(f"{place}.personal.{metric}.worst10"), by_seed(f"new_test.personal.{metric}.mean"),
            alike=_alike(_scores(_common(group, reference), headline(groups)))))
    adjusted = {kind: _adjusted([getattr(one, kind) for one in found]) for kind in ("seeds", "clients")}
    return [one._replace(seeds_p=adjusted["seeds"][number], clients_p=adjusted["clients"][number])
            for number, one in enumerate(found)]


def difference_rows(found: Iterable[Difference]) -> list[dict[str, Any]]:
    """One row per method: numbers, for data frames; None where there is none."""
    rows = []
    for one in found:
        row: dict[str, Any] = {"method": one.method, "reference": one.reference}
        for kind in ("seeds", "clients", "worst10", "new_clients"):
            pairs: Paired | None = getattr(one, kind)
            row |= {f"{kind}_{field}": None if pairs is None else getattr(pairs, field)
                    for field in ("number", "mean", "low", "high")}
            if kind in ("seeds", "clients"):
                row[f"{kind}_p"] = getattr(one, f"{kind}_p")
        rows.append(row)
    return rows


def difference_cells(found: Sequence[Difference]) -> list[list[str]]:
    """The same in words, the titles first; a column for which no method has a number is left out."""
    columns: dict[str, list[str]] = {f"minus {found[0].reference}": [one.method for one in found]}
    for kind, title in (("seeds", "difference"), ("worst10", "worst 10%"), ("new_clients", "new clients")):
        pairs = [getattr(one, kind) for one in found]
        columns[title] = ["–" if each is None else signed(each.mean) for each in pairs]
        if kind == "seeds":
            columns[f"over {_counted([one.seeds for one in found], 'seed')}"] = list(map(_interval, pairs))
            columns["p, seeds"] = [_p(one.seeds_p) for one in found]
            columns[f"over {_counted([one.clients for one in found], 'client')}"] = [
                _interval(one.clients) for one in found]
            columns["p, clients"] = [_p(one.clients_p) for one in found]
    shown = {title: cells for title, cells in columns.items() if set(cells) != {"–"}}
    return [list(shown), *map(list, zip(*shown.values(), strict=True))]


def explain_differences(found: Sequence[Difference]) -> str:
    """What the columns of these cells mean."""
    few = any(one.seeds is not None and not one.seeds.tested for one in found)
    enough = any(pairs is not None and pairs.tested for one in found for pairs in (one.seeds, one.clients))
    words = ["Differences are paired: the same seed, the same client."]
    if enough:
        holm = f", after Holm's correction for {len(found)} methods" if len(found) > 1 else ""
        words.append(f"Intervals are 95% bootstrap intervals of the mean; p is of Wilcoxon's signed-rank test{holm}.")
    if few:
        words.append(f"Of fewer than {fewest_pairs()} pairs the smallest and the largest difference are shown, and no "
                     "test is made.")
    return " ".join(words)


def conclude(groups: Sequence[Group], found: Sequence[Difference]) -> str:
    """One sentence that says what the differences allow, and not more."""
    metric = metrics(groups)[0]
    said: dict[str, list[str]] = {}
    for one in found:
        said.setdefault(_verdict(one, upwards=metric in UPWARDS), []).append(one.method)
    verdicts = (verdict.format(quoted_names(methods), "is" if len(methods) == 1 else "are")
                for verdict, methods in said.items())
    return f"By {metric}, against {quoted_names([found[0].reference])}: {'; '.join(verdicts)}{_caveat(found)}."


def _verdict(one: Difference, upwards: bool) -> str:
    """A half-sentence with places for the methods it is true of and for "is" or "are"."""
    if one.seeds is None:
        return "for {} there is nothing to compare (no common seed, or no finite score)"
    if one.seeds.signs[1] == one.seeds.number and (one.clients is None or one.clients.signs[1] == one.clients.number):
        return "all scores of {} are the same, so no difference is seen"
    better = "better" if (one.seeds.mean > 0) == upwards else "worse"
    over_seeds, over_clients = _is_seen(one.seeds, one.seeds_p), _is_seen(one.clients, one.clients_p)
    if over_clients and over_seeds and one.clients is not None and (one.clients.mean > 0) == (one.seeds.mean > 0):
        return f"{{}} {{}} {better}, over seeds and over clients"
    if over_clients and one.alike:
        return f"{{}} {{}} {better} over clients"
    if over_clients and one.seeds_p is None:
        if max(one.seeds.signs[0], one.seeds.signs[2]) < one.seeds.number:
            return "no difference is seen for {} on which the seeds agree"
        return f"{{}} {{}} {better} over clients, " + (
            "by the one seed" if one.seeds.number == 1 else
            "in both seeds" if one.seeds.number == 2 else f"in all {one.seeds.number} seeds")
    if over_seeds:
        untested = one.clients is None or one.clients_p is None
        return f"{{}} {{}} {better} over seeds" + ("" if untested else ", but over clients no difference is seen")
    if one.seeds_p is None and one.clients_p is None:
        return "there are too few pairs to tell for {}"
    return "no difference is seen for {}"


def _caveat(found: Sequence[Difference]) -> str:
    """What is left open because there are too few seeds, or because they have no say."""
    alike, same = [one for one in found if one.alike], ""
    if alike:
        most = max(one.alike for one in alike)
        same = f"; {'both' if most == 2 else f'all {most}'} seeds gave the same and count as one"
        same += "" if len(alike) == len(found) else f" for {quoted_names([one.method for one in alike])}"
    counts = [one.seeds.number for one in found
              if one.seeds is not None and one.seeds_p is None and not one.alike]
    if not counts:
        return same
    needed, few = fewest_pairs(len(found)), min(counts)
    return (f"{same}; {'1 seed is' if few == 1 else f'{few} seeds are'} too few to say that other seeds would show the "
            f"same (a test needs {needed} or more)")


def _is_seen(pairs: Paired | None, p: float | None) -> bool:
    """The test and the interval agree that the differences are not around 0."""
    return pairs is not None and p is not None and p < LEVEL and (pairs.low > 0 if pairs.mean > 0 else pairs.high < 0)


def _common(one: Group, other: Group) -> list[tuple[Run, Run]]:
    """The runs of both methods with the same seed."""
    others = {run.study["seed"]: run for run in other.runs}
    return [(run, others[run.study["seed"]]) for run in one.runs if run.study["seed"] in others]


def _over_seeds(pairs: Sequence[tuple[Run, Run]], key: str) -> Paired | None:
    scores = _scores(pairs, key)
    if not len(scores) or not np.isfinite(scores).all():
        return None
    scores = scores[:1] if _alike(scores) else scores
    return paired(scores[:, 0] - scores[:, 1], _unit(scores))


def _scores(pairs: Sequence[tuple[Run, Run]], key: str) -> np.ndarray:
    """The last number of this name of both methods, for each seed."""
    return np.array([[run.column(key)[-1] for run in pair] for pair in pairs])


def _alike(scores: np.ndarray) -> int:
    """How many seeds there are, if all gave the same: repeating a run in which nothing is drawn tells nothing new."""
    if len(scores) < 2 or not np.isfinite(scores).all():
        return 0
    return len(scores) if (np.ptp(scores, axis=0) <= _unit(scores)).all() else 0


def _over_clients(pairs: Sequence[tuple[Run, Run]], key: str) -> Paired | None:
    """Of the clients that both have scored, by the seeds in which they have."""
    if not pairs:
        return None
    names = client_names(pairs)
    scores = np.array([[run.scores_of(names, key) for run in pair] for pair in pairs])
    there = np.isfinite(scores).all(axis=1)
    apart = np.where(there, scores[:, 0] - scores[:, 1], 0.0)
    scored = there.any(axis=0)
    # A client that one method cannot score, because it diverged there, would make it look better if it were left out.
    if not scored.any() or (np.isfinite(scores).any(axis=1) & ~there).any():
        return None
    return paired(apart.sum(axis=0)[scored] / there.sum(axis=0)[scored], _unit(scores))


def _unit(scores: np.ndarray) -> float:
    return SAME * float(np.nanmax(np.abs(scores)))


def _adjusted(found: Sequence[Paired | None]) -> list[float | None]:
    """p-values by Holm's correction, of those with pairs enough for their number."""
    tested = {place: each.p for place, each in enumerate(found)
              if each is not None and each.number >= fewest_pairs(len(found))}
    corrected = dict(zip(tested, adjust_for_several(list(tested.values())), strict=True))
    return [corrected.get(place) for place in range(len(found))]


def quoted_names(methods: Sequence[str]) -> str:
    """Methods in a sentence; names that have commas or semicolons of their own are quoted.

    >>> print(quoted_names(["fedavg", "fedprox, mu=0.1", "ditto"]))
    fedavg, “fedprox, mu=0.1” and ditto
    """
    *others, last = (f"“{name}”" if {",", ";"} & set(name) else name for name in methods)
    return f"{', '.join(others)} and {last}" if others else last


def _counted(found: Sequence[Paired | None], word: str) -> str:
    """As in "3 seeds", not to be broken; without a number where methods differ in it."""
    counts = {each.number for each in found if each is not None}
    if len(counts) != 1:
        return f"{word}s"
    (count,) = counts
    return f"{count}\N{NO-BREAK SPACE}{word}{'' if count == 1 else 's'}"


def _interval(pairs: Paired | None) -> str:
    return "–" if pairs is None or pairs.number == 1 else f"{signed(pairs.low)} to {signed(pairs.high)}"


def signed(value: float) -> str:
    """
    >>> signed(0.0125), signed(-0.5), signed(-1e-9)
    ('+0.013', '-0.500', '0.000')
    """
    words = score(value)
    return f"+{words}" if value > 0 and words.strip("0.") else words


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"

