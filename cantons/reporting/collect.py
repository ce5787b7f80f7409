"""From run folders to groups: the runs of one study that differ in nothing but their seed."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cantons.errors import InputError
from cantons.metrics import HEADLINES
from cantons.study.dotted_keys import short_keys
from cantons.study.folder import Folder
from cantons.study.plain import flat
from cantons.study.reading import (
    SHOWN,
    as_number,
    read_clients,
    read_environment,
    read_evaluations,
    read_new_clients,
    read_study,
    read_summary,
)
from cantons.study.unfinished import check_last_stage

SETS = {"test": "test_examples", "online": "train_examples"}  # where scores come from: the first that every run has
# What grows from round to round.
ADDED_UP = ("uploads", "bytes_down", "bytes_up", "bytes_per_client", "rejected_uploads", "skipped_rounds", "seconds")
# What may differ between the runs of one group. Data may be split by another seed, which changes what follows here.
APART = ("seed", "checkpoint_every", "keep", "data.notes", "data.made_by.seed", "data.checksum", "data.population",
         "data.examples")


@dataclass(frozen=True)
class Run:
    """One run folder, read."""

    folder: Path
    study: Mapping[str, Any]
    environment: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    clients: Mapping[str, Sequence[str]]  # the columns of clients.csv
    stages: Mapping[str, int] = field(default_factory=dict)  # those before its last one: after which round each ended
    new_clients: Mapping[str, Sequence[str]] = field(default_factory=dict)  # the columns of new_clients.csv
    table: str = "clients.csv"  # the file that `clients` are from

    @property
    def before(self) -> int:
        """Rounds of the stages before its last one, which are in its history too."""
        return max(self.stages.values(), default=0)

    def column(self, key: str) -> np.ndarray:
        """One number of every evaluation; NaN where it is missing."""
        file = self.folder / "metrics.jsonl"
        return np.array([as_number(row.get(key), f"{key} after round {row['round']} in {file}")
                         for row in self.history], float)

    def scores(self, key: str) -> np.ndarray:
        """One number of every client at the last evaluation; NaN for liars and clients without test rows."""
        scored = self.numbers(SETS[key.partition(".")[0]]) > 0
        honest = self.numbers("liar") == 0 if "liar" in self.clients else True
        return np.where(scored & honest, self.numbers(key), np.nan)

    def scores_of(self, names: Sequence[str], key: str) -> np.ndarray:
        """The scores of the clients with these names; NaN for those who are not there."""
        if list(names) == list(self.clients["client"]):
            return self.scores(key)
        own = dict(zip(self.clients["client"], self.scores(key), strict=True))
        return np.array([own.get(name, np.nan) for name in names])

    def message_bytes(self, key: str) -> float:
        """The size of one message, by its name in the summary; NaN while the run is on its way."""
        file = self.folder / "summary.json"
        return as_number(read_summary(self.folder).get(key), f"{key} in {file}") if file.exists() else np.nan

    def advice(self) -> list[str]:
        """What there was to know before its first round; nothing is known of that while the run is on its way."""
        return read_summary(self.folder).get("advice", []) if (self.folder / "summary.json").exists() else []

    def has_one_model(self) -> bool:
        """Whether every client's own model scores what the shared one does, by whatever they are scored: it is that."""
        pairs = [(name, name.replace(".personal.", ".shared.")) for name in self.clients if ".personal." in name]
        return bool(pairs) and all(shared in self.clients and np.array_equal(
            self.numbers(own), self.numbers(shared), equal_nan=True) for own, shared in pairs)

    def rejected(self) -> list[str]:
        """The clients whose uploads were rejected."""
        names = self.history[-1].get("rejected_clients")
        return [str(name) for name in names] if isinstance(names, list) else []

    def numbers(self, name: str) -> np.ndarray:
        """A column of the table of clients."""
        file = self.folder / self.table
        if name not in self.clients:
            raise InputError(f"{file} has no column {name}; the run's next evaluation writes it anew.")
        return np.array([as_number(value, f"{name} in row {row} (from 0) of {file}")
                         for row, value in enumerate(self.clients[name])], float)


@dataclass(frozen=True)
class Group:
    """The runs of one method, one per seed."""

    label: str
    runs: tuple[Run, ...]

    @property
    def study(self) -> Mapping[str, Any]:
        return self.runs[0].study

    @property
    def rounds(self) -> np.ndarray:
        """The rounds after which every run was evaluated."""
        common = set.intersection(*({row["round"] for row in run.history} for run in self.runs))
        return np.array(sorted(common))

    def curve(self, key: str) -> np.ndarray:
        """One number over the common rounds, a row per seed."""
        return np.stack([run.column(key)[np.isin(run.column("round"), self.rounds)] for run in self.runs])

    def final(self, key: str) -> np.ndarray:
        """One number of the last evaluation of each seed."""
        return np.array([run.column(key)[-1] for run in self.runs])

    def messages(self, key: str) -> np.ndarray:
        """The size of one message of each seed, by its name in the summary."""
        return np.array([run.message_bytes(key) for run in self.runs])

    def clients(self, key: str, names: Sequence[str] | None = None) -> np.ndarray:
        """One number of every client at the end, averaged over the seeds in which it takes part and is scored."""
        named = client_names([self.runs]) if names is None else names
        scores = np.stack([run.scores_of(named, key) for run in self.runs])
        if any(run.study.get("evaluate_clients") for run in self.runs):
            there = np.isfinite(scores)  # each seed has scored a sample of its own
        else:  # a score that is no number stays none
            there = np.stack([np.isin(named, run.clients["client"]) for run in self.runs])
        return np.where(there, scores, 0).sum(axis=0) / np.where(there.any(axis=0), there.sum(axis=0), np.nan)

    def advice(self) -> list[str]:
        """What there was to know before its first round, of the first run that was told any: seeds differ little."""
        return next((advice for run in self.runs if (advice := run.advice())), [])

    def has_one_model(self) -> bool:
        """Whether no client has a model of its own, in any run."""
        return all(run.has_one_model() for run in self.runs)

    def of_new_clients(self) -> Group:
        """The same runs with their new clients in the place of the others; those without any are left out."""
        return Group(self.label, tuple(replace(run, clients=run.new_clients, table="new_clients.csv")
                                       for run in self.runs if run.new_clients))

    @property
    def is_resplit(self) -> bool:
        """Whether its runs have splits of the data of their own."""
        return len({run.study["data"]["checksum"] for run in self.runs}) > 1


def client_names(runs: Iterable[Iterable[Run]]) -> list[str]:
    """The clients of several methods, each once: where data are split anew, other clients may be the new ones."""
    return list(dict.fromkeys(name for some in runs for run in some for name in run.clients["client"]))


def collect(folders: Sequence[str | Path]) -> list[Group]:
    """Read the runs and put those together that differ in their seed only, in the order they came."""
    if not folders:
        raise InputError("no run folder was given; give at least one.")
    runs = [read_run(Path(folder)) for folder in folders]
    _check_data(runs)
    together: dict[str, list[Run]] = {}
    for run in runs:
        others = together.setdefault(_identity(run.study), [])
        for other in others:
            if other.study["seed"] == run.study["seed"]:
                raise InputError(f"{other.folder} and {run.folder} are the same study with the same seed; "
                                 "give one of them.")
        others.append(run)
    groups = [sorted(members, key=lambda run: run.study["seed"]) for members in together.values()]
    labels = _labels([members[0].study for members in groups])
    return [Group(label, tuple(members)) for label, members in zip(labels, groups, strict=True)]


def read_run(path: Path) -> Run:
    """Read one run folder, or say what it lacks."""
    study, history, clients = read_study(path, SHOWN), read_evaluations(path), read_clients(path)
    if not history or not clients:
        check_last_stage(path, study)
        raise InputError(f"{path} has no evaluation yet; let the run reach its first one, then ask again.")
    if len(clients["client"]) != study["data"]["population"]:
        raise InputError(f"{path / 'clients.csv'} has {len(clients['client'])} rows, and its study.json speaks of "
                         f"{study['data']['population']} clients; run its study again.")
    stages, history = _with_stages(path, history)
    run = Run(path, study, read_environment(path), history, clients, stages, read_new_clients(path))
    if not any(_metrics(run, place) for place in (*SETS, *_sets(run))):
        raise InputError(f"{path} has no test scores: its metrics.jsonl lacks test.personal.accuracy.mean and "
                         "test.personal.loss.mean; run it on data with test rows, or on a stream.")
    return run


def _with_stages(path: Path, history: list[dict[str, Any]]) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Where earlier stages end, and one history of all: rounds, traffic and times go on from stage to stage.

    Where one stage ends another begins: of these two evaluations, the second stays.
    """
    rounds, so_far = 0, dict.fromkeys(ADDED_UP, 0)
    ends: dict[str, int] = {}
    whole: list[dict[str, Any]] = []
    before = {folder.name.partition("-")[2]: read_evaluations(folder) for folder in Folder(path).stages()}
    for stage, rows in (*before.items(), (None, history)):
        whole = [row for row in whole if row["round"] < rounds]
        whole += [{**row, "round": rounds + row["round"], **{
            key: row[key] + total for key, total in so_far.items() if isinstance(row.get(key), int | float)}}
            for row in rows]
        rounds = whole[-1]["round"] if whole else 0
        so_far = {key: whole[-1].get(key, total) for key, total in so_far.items()} if whole else so_far
        ends |= {} if stage is None else {stage: rounds}
    return ends, whole


def metrics(groups: Sequence[Group]) -> list[str]:
    """The metrics that every run was scored by; the first is the headline."""
    runs, place = [run for group in groups for run in group.runs], scored_set(groups)
    found = [metric for metric in HEADLINES if all(metric in _metrics(run, place) for run in runs)]
    if not found:
        one, other = runs[0], next(run for run in runs if _metrics(run, place) != _metrics(runs[0], place))
        raise InputError(f"{one.folder} was scored by {', '.join(_metrics(one, place))} and {other.folder} by "
                         f"{', '.join(_metrics(other, place))}; compare runs that share a metric.")
    return found


def test_sets(groups: Sequence[Group]) -> dict[tuple[str, str], str]:
    """The test sets that are nobody's in particular: {(set, metric): the column of the shared model's score}."""
    return _named(groups, "shared")


def populations(groups: Sequence[Group]) -> dict[tuple[str, str], str]:
    """Where clients are of several groups: {(group, metric): the column of its clients' mean score}."""
    return _named(groups, f"{scored_set(groups)}.personal")


def _named(groups: Sequence[Group], place: str) -> dict[tuple[str, str], str]:
    """The columns "NAME.place.METRIC", by name and metric."""
    keys = dict.fromkeys(key for group in groups for run in group.runs for key in run.history[-1])
    parts = ((key, *key.partition(f".{place}.")) for key in keys)
    return {(name, metric): key for key, name, between, metric in parts if between and "." not in name + metric}


def diagnostics(groups: Sequence[Group]) -> dict[str, str]:
    """The numbers that algorithms and rules give of themselves, whatever they are: {what it is called: its column}."""
    found: dict[str, str] = {}
    for run in (run for group in groups for run in group.runs):
        for key, value in run.history[-1].items():
            kind, _, name = key.partition(".")
            if kind in ("server", "rule") and isinstance(value, int | float):
                found[f"{kind} {name}".replace("_", " ")] = key
            elif kind == "clients" and name.endswith(".mean"):
                found[f"client {name.removesuffix('.mean')}".replace("_", " ")] = key
    return found


def scored_set(groups: Sequence[Group]) -> str:
    """The clients' test rows ("test"); where not all runs have any, the stream ("online"), or a set that is nobody's.

    Of several such sets it is the last: the one of all, where there are one of the clients and one of the datacenter.
    """
    runs = [run for group in groups for run in group.runs]
    for place in (*SETS, *reversed(_sets(runs[0]))):
        if all(_metrics(run, place) for run in runs):
            return place
    untested = next(run for run in runs if not _metrics(run, "test"))
    raise InputError(f"{untested.folder} has no test rows, and not all of these runs met a stream; compare runs that "
                     "were scored on the same kind of rows.")


def headline(groups: Sequence[Group]) -> str:
    """The column that methods are compared by: of the personalised models, unless nobody's test set is all there is."""
    place, metric = scored_set(groups), metrics(groups)[0]
    return f"{place}.personal.{metric}.mean" if place in SETS else f"{place}.shared.{metric}"


def unit_of_time(groups: Sequence[Group]) -> str:
    """What a round is called where these runs are all of a kind: an event of late clients, a step of a stream."""
    for unit, key in (("events", "clock.time"), ("steps", "online.")):
        if all(any(name.startswith(key) for name in run.history[-1]) for group in groups for run in group.runs):
            return unit
    return "rounds"


def has_number(groups: Sequence[Group], key: str) -> bool:
    return any(np.isfinite(run.column(key)).any() for group in groups for run in group.runs)


def several_seeds(groups: Sequence[Group]) -> bool:
    return any(len(group.runs) > 1 for group in groups)


def differences(studies: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The dotted keys on which studies differ in more than APART, and what each of them has there.

    >>> differences([{"seed": 0, "clock": {"cohort": 5}}, {"seed": 1, "clock": {"cohort": 9}}])
    {'clock.cohort': [5, 9]}
    """
    tables = options_of(studies)
    keys = dict.fromkeys(key for table in tables for key in table)
    rows = {key: [table.get(key) for table in tables] for key in keys}
    return {key: values for key, values in rows.items() if any(value != values[0] for value in values)}


def options_of(studies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The dotted keys of each study. A part that is text, such as a pattern, stands where others have their names.

    >>> options_of([{"problem": {"split": "*bias"}}, {"problem": {"split": {"name": "output"}}}])
    [{'problem.split.name': '*bias'}, {'problem.split.name': 'output'}]
    """
    tables = [_options_of(study) for study in studies]
    keys = {key for table in tables for key in table}
    return [{f"{key}.name" if isinstance(value, str) and f"{key}.name" in keys else key: value
             for key, value in table.items()} for table in tables]


def _options_of(study: Mapping[str, Any]) -> dict[str, Any]:
    """Without APART, and without liars that follow from the seed."""
    drawn = ("byzantine.clients",) if (study.get("byzantine") or {}).get("count") else ()
    return {key: value for key, value in flat(study).items() if key not in (*APART, *drawn)}


def shown(value: Any) -> str:
    """A value of a study as readers see it: a dash for none, text without quotes."""
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value)


def _sets(run: Run) -> list[str]:
    """The test sets that are nobody's in particular."""
    return list(dict.fromkeys(name for key in run.history[-1] for name, between, metric in [key.partition(".shared.")]
                              if between and "." not in name + metric))


def _metrics(run: Run, place: str) -> list[str]:
    if place not in SETS:
        return [metric for metric in HEADLINES if f"{place}.shared.{metric}" in run.history[-1]]
    scored = SETS[place] in run.clients and (run.numbers(SETS[place]) > 0).any()
    return [metric for metric in HEADLINES if scored and f"{place}.personal.{metric}" in run.clients
            and f"{place}.personal.{metric}.mean" in run.history[-1]]


def _check_data(runs: Sequence[Run]) -> None:
    """Refuse runs of other data. Seeds may have splits of their own, if all methods have the same for the same seed."""
    of_seed: dict[int, Run] = {}
    for run in runs:
        same = of_seed.setdefault(run.study["seed"], run)
        for other in (same, runs[0]):
            first, second = other.study["data"], run.study["data"]
            resplit = other is not same and _is_other_split(first, second)
            if (first["checksum"], first["population"]) != (second["checksum"], second["population"]) and not resplit:
                raise InputError(
                    f"{other.folder} ran on {first['name']} (checksum {first['checksum']}) and {run.folder} on "
                    f"{second['name']} (checksum {second['checksum']}); compare runs of the same data.")


def _is_other_split(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two data sets were made in the same way but for the seed of their split."""
    tables = [flat({"data": data}) for data in (one, other)]
    first, second = ({key: value for key, value in table.items() if key not in APART} for table in tables)
    seeds = [table.get("data.made_by.seed") for table in tables]
    return None not in seeds and seeds[0] != seeds[1] and first == second


def _identity(study: Mapping[str, Any]) -> str:
    """What runs of one group have in common; an option that is missing is the same as one that is none."""
    return json.dumps({key: value for key, value in _options_of(study).items() if value is not None}, sort_keys=True)


def _labels(studies: Sequence[Mapping[str, Any]]) -> list[str]:
    """The studies' own names if these tell them apart; otherwise the algorithms', with what else differs."""
    names = [study["name"] for study in studies]
    if len(set(names)) == len(names) > 1:
        return names
    short = _with_differences(studies, short=True)
    return short if len(set(short)) == len(short) else _with_differences(studies, short=False)


def _with_differences(studies: Sequence[Mapping[str, Any]], short: bool) -> list[str]:
    """The algorithm of each study, and in what it differs from others with the same algorithm.

    If `short`, keys are without their tables, and where parts of different names are used, these stand for the options
    that parts of that name have in common: "fedavg, multi_krum" and not "fedavg, aggregate.name multi_krum,
    aggregate.f 3".
    """
    algorithms = [study["name"] if "stages" in study else study["algorithm"]["name"] for study in studies]
    labels = []
    for place, algorithm in enumerate(algorithms):
        rivals = [rival for rival, name in enumerate(algorithms) if name == algorithm]
        values, own = differences([studies[rival] for rival in rivals]), rivals.index(place)
        parts = {key.removesuffix("name") for key in values if short and key.endswith(".name")}
        apart = {key: each[own] for key, each in values.items() if each[own] is not None and _tells(
            key, values, own, parts)}
        names = short_keys(apart) if short else {key: key for key in apart}
        words = [shown(value) if key.removesuffix("name") in parts else f"{names[key]} {shown(value)}"
                 for key, value in apart.items()]
        labels.append(", ".join([algorithm, *words]))
    return labels


def _tells(key: str, values: Mapping[str, Sequence[Any]], own: int, parts: Collection[str]) -> bool:
    """Whether one method differs in this key from others in which the parts around it have the same names."""
    around = [f"{part}name" for part in parts if key.startswith(part) and key != f"{part}name"]
    there = [value for index, value in enumerate(values[key])
             if all(values[name][index] == values[name][own] for name in around)]
    return any(value != there[0] for value in there)
