"""The sections of a report, from groups to HTML, in the order of the page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from cantons.reporting import figures
from cantons.reporting.collect import (
    SETS,
    Group,
    diagnostics,
    differences,
    headline,
    metrics,
    scored_set,
    shown,
    test_sets,
)
from cantons.reporting.collect import populations as of_populations
from cantons.reporting.duel import verdict
from cantons.reporting.markup import element, figure, folded, gallery, table
from cantons.reporting.table import cells, legend, meaning_of_spread

MODELS = {"personal": "Personalised models", "shared": "Shared model"}
ONLINE = ("loss", "accuracy", "reward")
LOSSES = {"rejected_uploads": "Rejected uploads", "skipped_rounds": "Skipped rounds"}


def lead(groups: Sequence[Group]) -> str:
    """What was compared, on which test set, and what to know before believing it."""
    data = groups[0].study["data"]
    seeds = {group.label: len(group.runs) for group in groups}
    if len(set(seeds.values())) == 1:
        methods = f"{_listed(list(seeds))} with {_seeds(len(groups[0].runs))}{' each' if len(groups) > 1 else ''}"
    else:
        methods = _listed([f"{label} ({_seeds(count)})" for label, count in seeds.items()])
    rounds = sorted({group.runs[0].before + group.study["rounds"] for group in groups})
    length = " to ".join(dict.fromkeys(str(edge) for edge in (rounds[0], rounds[-1])))
    sentence = (f"{methods}: {length} rounds on {data['name']}, {data['population']} clients with {data['examples']} "
                f"training examples in all. Scores are the {metrics(groups)[0]} {scored_on(groups)}; "
                f"{_counted(groups)}.")
    return element("p", sentence, "lead") + "".join(element("p", notice, "notice") for notice in _notices(groups))


def results(groups: Sequence[Group], rows: Sequence[Mapping[str, Any]]) -> str:
    """The table."""
    spread = f", ± {meaning_of_spread(rows)}" if meaning_of_spread(rows) else ""
    note = f"{_headline(groups)} after the last round{spread}. {legend(rows)[0].upper()}{legend(rows)[1:]}."
    return element("h2", "Results") + table(cells(rows), swatches=True) + element("p", note, "note")


def learning(groups: Sequence[Group]) -> str:
    """Test scores of both models against rounds, if there are test rows."""
    if scored_set(groups) != "test":
        return ""
    drawn = []
    for metric in metrics(groups):
        keys = {model: f"test.{model}.{metric}.mean" for model in MODELS}
        drawn += [figure(f"{MODELS[model]}: {metric}", partial(
            figures.curves, groups, key, f"mean test {metric}", list(keys.values()))) for model, key in keys.items()]
    note = "Means over the clients." + (
        " Lines are means over seeds; bands reach from the smallest seed to the largest." if _several(groups) else "")
    return element("h2", "Learning curves") + element("p", note, "note") + gallery(drawn)


def whole_sets(groups: Sequence[Group]) -> str:
    """The shared model on test sets that are nobody's in particular, if there are any."""
    return _named(groups, "Test sets", test_sets(groups), "The shared model on whole test sets, whose examples all "
                  "count the same, whoever they belong to.")


def populations(groups: Sequence[Group]) -> str:
    """What clients score in each of their groups, if they are of several."""
    return _named(groups, "Groups", of_populations(groups), "Means over the clients of each group, on the "
                  f"{scored_set(groups)} examples.")


def _named(groups: Sequence[Group], title: str, columns: Mapping[tuple[str, str], str], note: str) -> str:
    """A curve for each (name, metric), if there are any."""
    drawn = [figure(f"{name.capitalize()}: {metric}", partial(figures.curves, groups, key, f"{metric}, {name}"))
             for (name, metric), key in columns.items() if _anywhere(groups, key)]
    return element("h2", title) + element("p", note, "note") + gallery(drawn) if drawn else ""


def online(groups: Sequence[Group]) -> str:
    """What streams of examples cost those who had not learned from them yet, if there are any."""
    titles = {f"online.personal.{metric}.mean": f"{metric.capitalize()} so far" for metric in ONLINE}
    drawn = [figure(title, partial(figures.curves, groups, key, f"mean online {title.lower()}", across="steps"))
             for key, title in titles.items() if _anywhere(groups, key)]
    if not drawn:
        return ""
    note = ("Clients are scored on new examples before they learn from them. Curves show means over clients of their "
            "averages so far.")
    if _anywhere(groups, "online.regret"):
        bounds = {"online.regret_bound": "Theorem 2"} if _anywhere(groups, "online.regret_bound") else {}
        drawn.append(figure("Regret so far", partial(figures.curves, groups, "online.regret", "average regret",
                                                     across="steps", bounds=bounds)))
        note += (" Regret is what an example cost on average beyond the best fixed pair of a shared and a private "
                 "model, which is found in hindsight for the examples met so far.")
        note += (" Dotted: what Theorem 2 of Agarwal, Langford and Wei (2020) promises FedRes.SGD with the step size "
                 "it names, whatever was run here. Its quantities are measured on these examples, and one constant "
                 "that the proof leaves open is 1.") if bounds else ""
    if _anywhere(groups, "online.collective_regret"):
        drawn += _collective(groups)
        note += (" Collective regret is a total: what every client's model cost on everybody's examples, beyond the "
                 "best fixed point of the set, which is found in hindsight for the examples met so far.")
        note += (" Dynamic regret is held against the best point of each step."
                 if _anywhere(groups, "online.dynamic_regret") else "")
        note += (" Dotted beside it: what the theorems of Mitra, Hassani and Pappas (2021) promise for the set, the map"
                 " and the step size of the run, with the steepest gradient measured on these examples."
                 if _anywhere(groups, "online.collective_bound") else "")
    return element("h2", "Online") + element("p", note, "note") + gallery(drawn)


def _collective(groups: Sequence[Group]) -> list[str]:
    """Regret by itself, where a logarithm in time is a straight line, and with a bound that may be far above it."""
    label, key, bound = "collective regret", "online.collective_regret", "online.collective_bound"
    drawn = [figure("Collective regret so far", partial(figures.curves, groups, key, label, across="steps",
                                                        log_across=True))]
    if _anywhere(groups, bound):
        drawn.append(figure("Collective regret and its bound", partial(
            figures.curves, groups, key, label, across="steps", bounds={bound: "bound"}, log_across=True)))
    if _anywhere(groups, "online.dynamic_regret"):
        drawn.append(figure("Dynamic regret so far", partial(
            figures.curves, groups, "online.dynamic_regret", "dynamic regret", across="steps")))
    return drawn


def clients(groups: Sequence[Group], reference: Group) -> str:
    """How the scores spread over clients, and who gains and loses against the reference.

    A method that stands alone has its personalised models held against its shared one, where there are test rows.
    """
    metric, scored = metrics(groups)[0], scored_set(groups)
    if scored not in SETS:
        return ""
    upwards, alone = metric == "accuracy", len(groups) == 1
    models = MODELS if scored == "test" else {"personal": MODELS["personal"]}
    keys = {model: f"{scored}.{model}.{metric}" for model in models}
    drawn = [figure(f"{title}: {metric} of every client", partial(
        figures.ranked, groups, keys[model], f"{scored} {metric}", upwards)) for model, title in models.items()]
    duels = []
    for place, group in enumerate(groups):
        if "shared" not in models if alone else group is reference:
            continue
        old, new = ("shared", "personal") if alone else (reference.label, group.label)
        before = reference.clients(keys["shared" if alone else "personal"])
        after = group.clients(keys["personal"])
        duels.append(figure(f"{new} against {old}", partial(
            figures.against, before, after, place, (old, new), upwards),
            verdict(before, after, group.runs[0].clients["client"], upwards)))
    averaged = ", averaged over seeds" if _several(groups) else ""
    note = f"{_headline(groups)} after the last round{averaged}. A dot is a client, a larger dot several."
    return element("h2", "Clients") + element("p", note, "note") + gallery(drawn) + gallery(duels, "squares")


def communication(groups: Sequence[Group]) -> str:
    """Scores against bytes."""
    metric, scored = metrics(groups)[0], scored_set(groups)
    by_clients = {f"{scored}.personal.{metric}.{statistic}": title for statistic, title in (
        ("mean", "Mean of the clients"), ("worst10", "Worst tenth of the clients"))}
    titles = by_clients if scored in SETS else {headline(groups): scored.capitalize()}
    drawn = [figure(f"{title}: {metric}", partial(figures.traffic, groups, key, f"{scored} {metric}"))
             for key, title in titles.items()]
    models = "Personalised models" if scored in SETS else "The shared model"
    note = f"{models}, against what a client has sent and received so far."
    return element("h2", "Communication") + element("p", note, "note") + gallery(drawn)


def asynchronous(groups: Sequence[Group]) -> str:
    """Scores against virtual time, and delays, if clients worked asynchronously."""
    if not _anywhere(groups, "clock.time"):
        return ""
    label = f"{scored_set(groups)} {metrics(groups)[0]}"
    delays = {"clock.delay.mean": "Mean delay", "clock.delay.max": "Longest delay so far"}
    drawn = [figure(f"In time: {label}", partial(figures.against_time, groups, headline(groups), label)), *(figure(
        title, partial(figures.curves, groups, key, title.lower(), across="events")) for key, title in delays.items())]
    note = "A delay is the number of events between the beginning of a job and its own; means are since the last look."
    return element("h2", "Asynchronous clients") + element("p", note, "note") + gallery(drawn)


def diagnosed(groups: Sequence[Group]) -> str:
    """What algorithms and rules say of themselves, if anything."""
    drawn = [figure(name.capitalize(), partial(figures.curves, groups, key, name))
             for name, key in diagnostics(groups).items() if _anywhere(groups, key)]
    if not drawn:
        return ""
    note = ("Numbers that the methods give of themselves: of the server's state, of each client (means over clients), "
            "and of the aggregation rule (means over the rounds since the evaluation before).")
    return element("h2", "Diagnostics") + element("p", note, "note") + gallery(drawn)


def losses(groups: Sequence[Group]) -> str:
    """What did not arrive, if anything."""
    drawn = [figure(title, partial(figures.curves, groups, key, f"{title.lower()} so far"))
             for key, title in LOSSES.items() if any(group.final(key).any() for group in groups)]
    if not drawn:
        return ""
    note = "An upload that is NaN or infinite is rejected; a round in which nothing usable arrives is skipped."
    who = "".join(element("p", f"{group.label} rejected uploads of {_listed(names, 12)}.") for group in groups
                  if (names := sorted({name for run in group.runs for name in run.rejected()})))
    return element("h2", "Lost on the way") + element("p", note, "note") + gallery(drawn) + who


def studies(groups: Sequence[Group]) -> str:
    """The studies as they were run: what differs first, everything folded below."""
    labels = [group.label for group in groups]
    rows = [[key, *map(shown, values)] for key, values in differences([group.study for group in groups]).items()]
    whole = (folded(f"{group.label}: {', '.join(str(run.folder) for run in group.runs)}",
                    json.dumps(group.study, indent=2, ensure_ascii=False)) for group in groups)
    return element("h2", "The study as run") + (table([["option", *labels], *rows]) if rows else "") + "".join(whole)


def environments(groups: Sequence[Group]) -> str:
    """Where the runs were made: one paragraph for each different place."""
    places: dict[str, list[str]] = {}
    for run in (run for group in groups for run in group.runs):
        places.setdefault(json.dumps(run.environment), []).append(str(run.folder))
    return element("h2", "Environment") + "".join(
        element("p", _environment(json.loads(place)) + ("" if len(places) == 1 else f" ({_listed(folders)})"), "note")
        for place, folders in places.items())


def scored_on(groups: Sequence[Group]) -> str:
    """Which rows the scores are of, as a sentence has it."""
    if scored_set(groups) == "online":
        return "of each example before it was learned from"
    if scored_set(groups) not in SETS:
        return f"of the shared model on the test set “{scored_set(groups)}”"
    return f"on the test set “{groups[0].study['data'].get('test_set', 'of each client')}”"


def _counted(groups: Sequence[Group]) -> str:
    if scored_set(groups) not in SETS:
        return "every example counts the same"
    counts = sorted({group.study["evaluate_clients"] for group in groups if group.study.get("evaluate_clients")})
    sample = f"; {' or '.join(map(str, counts))} clients were scored, drawn by the seed" if counts else ""
    return f"every client counts the same{sample}"


def _headline(groups: Sequence[Group]) -> str:
    return f"{scored_set(groups).capitalize()} {metrics(groups)[0]}"


def _notices(groups: Sequence[Group]) -> list[str]:
    """Runs that are not over, and runs whose scores are not numbers any more."""
    key = headline(groups)
    found = []
    for run in (run for group in groups for run in group.runs):
        done, asked = run.history[-1]["round"], run.before + run.study["rounds"]
        if done < asked:
            found.append(f"{run.folder} is not over: what is shown ends at round {done} of {asked}.")
        if not np.isfinite(run.column(key)[-1]):
            found.append(f"{run.folder} diverged: its last scores are not finite.")
    return found


def _environment(place: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in place["versions"].items() if version)
    devices = ", ".join(f"{place['devices'].count(kind)} x {kind}" for kind in dict.fromkeys(place["devices"]))
    return (f"Python {place['python']} on {place['system']} ({place['machine']}, {place.get('cores')} cores); "
            f"devices: {devices}; {versions}.")


def _listed(names: Sequence[str], most: int = 6) -> str:
    """Names as a sentence has them; those with a comma of their own are kept apart by semicolons.

    >>> _listed(["ann", "bob", "eve"]), _listed(["ann", "bob", "eve"], most=2)
    ('ann, bob and eve', 'ann, bob and 1 more')
    >>> _listed(["fedavg", "fedprox, mu=0.1", "scaffold"])
    'fedavg; fedprox, mu=0.1; and scaffold'
    """
    rest = len(names) - most
    *most_names, last = [*names[:most], f"{rest} more"] if rest > 0 else names
    if any("," in name for name in names):
        return "; ".join([*most_names, f"and {last}" if most_names else last])
    return f"{', '.join(most_names)} and {last}" if most_names else last


def _anywhere(groups: Sequence[Group], key: str) -> bool:
    return any(np.isfinite(run.column(key)).any() for group in groups for run in group.runs)


def _several(groups: Sequence[Group]) -> bool:
    return any(len(group.runs) > 1 for group in groups)


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"
