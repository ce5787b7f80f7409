"""The section of a report about clients who took no part in training: what each gains by a model of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from cantons.metrics import UPWARDS
from cantons.reporting import figures
from cantons.reporting.collect import Group, client_names, metrics, several_seeds
from cantons.reporting.duel import count_better, verdict
from cantons.reporting.markup import element, figure, gallery
from cantons.reporting.sections import by_name


class Newcomers(NamedTuple):
    """The new clients of one method, and what they score."""

    place: int  # of the method, which has its colour
    group: Group
    names: list[str]
    shared: np.ndarray
    personal: np.ndarray

    @property
    def scored(self) -> np.ndarray:
        return np.isfinite(self.shared) & np.isfinite(self.personal)


def section(groups: Sequence[Group]) -> str:
    """Each new client's own model against the shared one, for every method; nothing where there are no new clients."""
    metric = metrics(groups)[0]
    found = _newcomers(groups, metric)
    if not found:
        return ""
    upwards, alone = metric in UPWARDS, len(groups) == 1
    everything = np.concatenate([scores for one in found for scores in (one.shared, one.personal)])
    apart = [one for one in found if not one.group.has_one_model()]  # of the others there is nothing to be said
    drawn = [figure(f"New clients{'' if alone else f' of {one.group.label}'}: personal against shared", partial(
        figures.against, one.shared, one.personal, one.place, ("shared", "personal"), upwards, everything),
        verdict(one.shared, one.personal, one.names, upwards)) for one in apart]
    averaged = ", averaged over seeds" if several_seeds(groups) else ""
    note = (f"Clients who took no part in training: the test {metric} of the model that each has on its first day, and "
            f"of the shared model, after the last round{averaged}."
            + (" A dot is a client, a larger dot several." if apart else ""))
    sentences = [element("p", f"{'' if alone else f'{one.group.label}: '}{_how_many(one, upwards)}") for one in apart]
    return (element("h2", "New clients") + "".join(sentences) + element("p", note, "note") + gallery(drawn, "squares")
            + _table(found, alone))


def _newcomers(groups: Sequence[Group], metric: str) -> list[Newcomers]:
    """Of the methods whose new clients have test scores."""
    found = []
    for place, group in enumerate(groups):
        new = group.of_new_clients()
        if new.runs and all(f"new_test.personal.{metric}.mean" in run.history[-1] for run in new.runs):
            names = client_names([new.runs])
            one = Newcomers(place, new, names, *(new.clients(f"test.{model}.{metric}", names)
                                                 for model in ("shared", "personal")))
            found += [one] if one.scored.any() else []
    return found


def _how_many(one: Newcomers, upwards: bool) -> str:
    better = count_better(one.shared, one.personal, upwards)
    return f"{better} of {one.scored.sum()} new clients do better with their own model than with the shared one."


def _table(found: Sequence[Newcomers], alone: bool) -> str:
    """The scores by name, where new clients are few; of several methods those of the personalised models."""
    names = client_names(one.group.runs for one in found)
    if alone:
        columns = {"personal model": found[0].personal, "shared model": found[0].shared}
    else:
        columns = {one.group.label: np.array([dict(zip(one.names, one.personal, strict=True)).get(name, np.nan)
                                              for name in names]) for one in found}
    return by_name(found[0].group, names, columns, "New clients")
