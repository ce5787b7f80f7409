"""The sections of a report about scores, from groups to HTML, in the order of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from cantons.display import score
from cantons.errors import amount
from cantons.metrics import UPWARDS
from cantons.reporting import figures
from cantons.reporting.collect import (
    SETS,
    Group,
    client_names,
    diagnostics,
    has_number,
    headline,
    metrics,
    scored_set,
    several_seeds,
    test_sets,
    unit_of_time,
)
from cantons.reporting.collect import populations as of_populations
from cantons.reporting.duel import verdict
from cantons.reporting.markup import element, figure, gallery, table
from cantons.reporting.paired import quoted_names
from cantons.reporting.table import cells, legend, meaning_of_spread
from cantons.reporting.traffic import explain_traffic, traffic_cells
from cantons.reporting.words import listed

NAMED = 15  # so many clients are few enough to be told apart by name
MODELS = {"personal": "Personalised models", "shared": "Shared model"}


def lead(groups: Sequence[Group]) -> str:
    """What was compared, on which test set, and what to know before believing it."""
    data = groups[0].study["data"]
    seeds = {group.label: len(group.runs) for group in groups}
    if len(set(seeds.values())) == 1:
        each = " each" if len(groups) > 1 else ""
        methods = f"{listed(list(seeds))} with {amount(len(groups[0].runs), 'seed')}{each}"
    else:
        methods = listed([f"{label} ({amount(count, 'seed')})" for label, count in seeds.items()])
    rounds = sorted({group.runs[0].before + group.study["rounds"] for group in groups})
    length = " to ".join(dict.fromkeys(str(edge) for edge in (rounds[0], rounds[-1])))
    sentence = (f"{methods}: {length} {unit_of_time(groups)} on {data['name']}, {data['population']} clients with "
                f"{data['examples']} training examples in all. Scores are the {metrics(groups)[0]} "
                f"{scored_on(groups)}; {_counted(groups)}.")
    return element("p", sentence, "lead") + "".join(element("p", notice, "notice") for notice in _notices(groups))


def results(groups: Sequence[Group], rows: Sequence[Mapping[str, Any]]) -> str:
    """The table."""
    spread = f", ± {meaning_of_spread(rows)}" if meaning_of_spread(rows) else ""
    note = f"{_headline(groups)} after the last round{spread}. {legend(rows)[0].upper()}{legend(rows)[1:]}."
    shown = table(cells(rows, without=list(diagnostics(groups))), "Results", swatches=True)
    return element("h2", "Results") + shown + element("p", note, "note")


def learning(groups: Sequence[Group]) -> str:
    """Test scores of both models against rounds, if there are test rows."""
    if scored_set(groups) != "test":
        return ""
    drawn = []
    for metric in metrics(groups):
        keys = {model: f"test.{model}.{metric}.mean" for model in MODELS}
        drawn += [figure(f"{MODELS[model]}: {metric}", partial(
            figures.curves, groups, key, f"mean test {metric}", list(keys.values()), unit_of_time(groups)))
            for model, key in keys.items()]
    note = "Means over the clients." + (
        " Lines are means over seeds; bands reach from the smallest seed to the largest." if several_seeds(groups)
        else "")
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
    drawn = [figure(f"{name.capitalize()}: {metric}", partial(
        figures.curves, groups, key, f"{metric}, {name}", across=unit_of_time(groups)))
             for (name, metric), key in columns.items() if has_number(groups, key)]
    return element("h2", title) + element("p", note, "note") + gallery(drawn) if drawn else ""




def clients(groups: Sequence[Group], reference: Group) -> str:
    """How the scores spread over clients, and who gains and loses against the reference.

    A method that stands alone has its personalised models held against its shared one, where there are test rows.
    """
    metric, scored = metrics(groups)[0], scored_set(groups)
    if scored not in SETS:
        return ""
    upwards, alone = metric in UPWARDS, len(groups) == 1
    models = MODELS if scored == "test" else {"personal": MODELS["personal"]}
    keys = {model: f"{scored}.{model}.{metric}" for model in models}
    drawn = [figure(f"{title}: {metric} of every client", partial(
        figures.ranked, groups, keys[model], f"{scored} {metric}", upwards)) for model, title in models.items()]
    duels: list[str] = []
    names = client_names(group.runs for group in groups)
    found = [group.clients(keys[model], names) for group in groups for model in (models if alone else ("personal",))]
    for place, group in enumerate(groups):
        if "shared" not in models or group.has_one_model() if alone else group is reference:
            continue
        old, new = ("shared", "personal") if alone else (reference.label, group.label)
        before = reference.clients(keys["shared" if alone else "personal"], names)
        after = group.clients(keys["personal"], names)
        duels.append(figure(f"{new} against {old}", partial(
            figures.against, before, after, place, (old, new), upwards, np.concatenate(found)),
            verdict(before, after, names, upwards)))
    averaged = ", averaged over seeds" if several_seeds(groups) else ""
    note = f"{_headline(groups)} after the last round{averaged}. A dot is a client, a larger dot several."
    note += "".join(f" {words[0].upper()}{words[1:]}." for words in groups[0].study["data"].get("notes", ()))
    columns = {f"{model} model": groups[0].clients(keys[model], names) for model in models} if alone else {
        group.label: group.clients(keys["personal"], names) for group in groups}
    return (element("h2", "Clients") + element("p", note, "note") + gallery(drawn) + gallery(duels, "squares")
            + by_name(groups[0], names, columns, "Clients"))


def by_name(group: Group, names: Sequence[str], columns: Mapping[str, np.ndarray], title: str) -> str:
    """A table with the score of each client, where they are few enough to be read one by one."""
    if len(names) > NAMED:
        return ""
    sizes = {name: count for run in reversed(group.runs) for name, count in zip(
        run.clients["client"], run.clients.get("test_examples", ()), strict=False)}
    tested = [sizes.get(name, "–") for name in names] if sizes else []
    shown = [["client", *names]] + ([["test rows", *tested]] if any(count not in ("", "0") for count in tested) else [])
    shown += [[name, *("–" if not np.isfinite(value) else score(value) for value in values)]
              for name, values in columns.items()]
    return table(list(zip(*shown, strict=True)), title)


def communication(groups: Sequence[Group]) -> str:
    """What travelled, and scores against it."""
    metric, scored = metrics(groups)[0], scored_set(groups)
    by_clients = {f"{scored}.personal.{metric}.{statistic}": title for statistic, title in (
        ("mean", "Mean of the clients"), ("worst10", "Worst tenth of the clients"))}
    titles = by_clients if scored in SETS else {headline(groups): scored.capitalize()}
    drawn = [figure(f"{title}: {metric}", partial(figures.traffic, groups, key, f"{scored} {metric}"))
             for key, title in titles.items()]
    models = "personalised models" if scored in SETS else "the shared model"
    note = f"{explain_traffic(groups)} Figures are of {models}, against what the average client has sent and received."
    shown = table(traffic_cells(groups), "Communication", swatches=True)
    return element("h2", "Communication") + shown + element("p", note, "note") + gallery(drawn)







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


def _advice(groups: Sequence[Group]) -> list[str]:
    """Each sentence once, with the methods that it was told of, unless these are all of them."""
    told: dict[str, list[str]] = {}
    for group in groups:
        for sentence in dict.fromkeys(group.advice()):
            told.setdefault(sentence, []).append(group.label)
    return [sentence if len(labels) == len(groups) else f"{quoted_names(labels)}: {sentence}"
            for sentence, labels in told.items()]


def _notices(groups: Sequence[Group]) -> list[str]:
    """What there was to know beforehand, runs that are not over, and runs whose scores are not numbers any more."""
    key = headline(groups)
    found = _advice(groups)
    for run in (run for group in groups for run in group.runs):
        done, asked = run.history[-1]["round"], run.before + run.study["rounds"]
        if done < asked:
            found.append(f"{run.folder} is not over: what is shown ends at round {done} of {asked}.")
        if not np.isfinite(run.column(key)[-1]):
            found.append(f"{run.folder} diverged: its last scores are not finite.")
    return found
