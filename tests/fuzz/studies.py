"""Studies: parts that fit each other, with some of their options changed, keys added or gone, or the text damaged."""

from __future__ import annotations

import datetime
import itertools
import json
import math
from functools import cache
from typing import Any, NamedTuple

from fuzz.damage import damaged
from fuzz.values import Raw, fitting, nonsense, odd, of_type, parameters, quoted_words
from hypothesis import strategies as st

from cantons.engine import Local
from cantons.errors import InputError
from cantons.problem import MODELS
from cantons.study.read import TABLES, Settings, check_study
from cantons.study.registry import REGISTRY
from cantons.study.resolve import resolve

# Small data, so that a study is built in milliseconds. A new maker is tried with its defaults.
SMALL: dict[str, dict[str, Any]] = {
    "digits": {"clients": 5}, "synthetic": {"clients": 4, "features": 3, "largest": 40},
    "synthetic_mixture": {"clients": 3, "features": 3, "examples": 10}, "restaurants": {"examples": 12},
    "synthetic_least_squares": {"clients": 3, "rows": 8, "shared": 3, "private": 2},
    "drifting_targets": {"clients": 3, "steps": 12}, "synthetic_bandit": {"clients": 3, "contexts": 8,
                                                                          "test_contexts": 4},
    "classification_bandit": {"source": {"name": "digits", "clients": 4}},
    "classification_log": {"source": {"name": "digits", "clients": 4}}}
# Readers are given the sound files that lie in the folder `samples` beside the study.
MODELS_SMALL = {"linear": {}, "mlp": {"hidden": [3]}, "cnn": {"channels": [2], "dense": 3},
                "embedding": {"vocabulary": 5}, "gru": {"vocabulary": 5, "width": 2, "units": 3},
                "transformer": {"vocabulary": 5, "width": 2, "blocks": 1, "heads": 1}}
EXAMPLES = {"logistic": "synthetic", "classification": "synthetic", "linear": "restaurants",
            "regression": "restaurants",
            "residual": "restaurants", "target": "drifting_targets", "bandit": "synthetic_bandit",
            "dual_encoder": "movie_sequences", "logged_bandit": "classification_log"}


HALF = {"name": "from_clients", "fraction": 0.5}


class Fits(NamedTuple):
    """What goes together, found by trying: most studies should get past the first refusal."""

    problems: dict[str, list[str]]  # data -> problems
    methods: dict[str, list[tuple[str, str, bool]]]  # problem -> (algorithm, clock, does it need a datacenter?)


def find_fits(samples: dict[str, dict[str, Any]]) -> Fits:
    """Build every problem on every data, and every algorithm under every clock on one data set of each problem."""
    problems = {data: [name for name in REGISTRY["problem"] if _works({**_bare(name), "data": table})]
                for data, table in _tables(samples).items()}
    methods = {}
    for name in REGISTRY["problem"]:
        data = EXAMPLES.get(name) or next(data for data, fitting in problems.items() if name in fitting)
        study = {**_bare(name), "data": _tables(samples)[data]}
        mixed = {**study, "problem": {**study["problem"], "central_loss": "same"}, "central": HALF}
        methods[name] = []
        for algorithm, clock in itertools.product(REGISTRY["algorithm"], REGISTRY["clock"]):
            more = {"algorithm": _method(algorithm), "clock": {"name": clock}}
            # Lazily: where the plain study works, the mixed one is not tried.
            fitting = (tried is mixed for tried in (study, mixed) if _works({**tried, **more}, resolved=True))
            methods[name] += [(algorithm, clock, each) for each in itertools.islice(fitting, 1)]
    return Fits(problems, methods)


def _bare(problem: str) -> dict[str, Any]:
    models = {option.name: "linear" for option in parameters("problem", problem)
              if option.name in MODELS and option.default is option.empty}
    split = {"split": "*bias"} if any(option.name == "split" for option in parameters("problem", problem)) else {}
    return {"rounds": 2, "problem": {"name": problem, **models, **(split if problem != "target" else {})},
            "algorithm": {"name": "fedavg"}}


def _method(algorithm: str) -> dict[str, Any]:
    """An algorithm; where it draws batches of the datacenter, small ones."""
    batch = any(option.name == "central_batch_size" for option in parameters("algorithm", algorithm))
    return {"name": algorithm, **({"central_batch_size": 2} if batch else {})}


def _tables(samples: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {"name": name, **samples.get(name, SMALL.get(name, {}))} for name in sorted(REGISTRY["data"])}


def _works(study: dict[str, Any], resolved: bool = False) -> bool:
    try:
        problem, data, recipe, chosen = check_study(study, "fits").parts()
        if resolved:
            resolve(problem, data, recipe, **chosen, engine=Local())
    except InputError:
        return False
    return True


@st.composite
def studies(draw: st.DrawFn, samples: dict[str, dict[str, Any]], fits: Fits) -> str:
    """The text of a study; `samples` has the [data] table of a sound file for every reader."""
    study = draw(_fitting(samples, fits))
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 1, 2]))):
        draw(_change(study))
    text = as_toml(study)
    return draw(damaged(text.encode())).decode("utf-8", "surrogateescape") if draw(_one_in(20)) else text


@st.composite
def _fitting(draw: st.DrawFn, samples: dict[str, dict[str, Any]], fits: Fits) -> dict[str, Any]:
    """Parts that go together, each with some options that fit by their type."""
    tables = _tables(samples)
    data = draw(st.sampled_from(sorted(tables)))
    problem = draw(st.sampled_from(fits.problems.get(data) or sorted(REGISTRY["problem"])))
    algorithm, clock, mixed = draw(st.sampled_from(fits.methods.get(problem) or [("fedavg", "rounds", False)]))
    if draw(_one_in(12)):
        problem = draw(st.sampled_from(sorted(REGISTRY["problem"])))
    if draw(_one_in(12)):
        algorithm = draw(st.sampled_from(sorted(REGISTRY["algorithm"])))
    study: dict[str, Any] = {"rounds": 2, "data": draw(_more("data", tables[data])), "problem": draw(_problem(problem)),
                             "algorithm": draw(_more("algorithm", _method(algorithm)))}
    if clock != "rounds" or draw(_one_in(4)):
        study["clock"] = draw(_more("clock", {"name": clock}))
    if mixed or draw(_one_in(20)):
        study["central"] = draw(_centre(tables))
        study["problem"]["central_loss"] = draw(_more(
            "central_loss", {"name": draw(st.sampled_from(sorted(REGISTRY["central_loss"])))}))
        if draw(_one_in(3)):
            study["problem"]["weights"] = draw(st.lists(st.floats(0, 2), min_size=1, max_size=3))
        if draw(_one_in(4)):  # several losses, of several kinds of examples
            losses = {name: draw(st.sampled_from(sorted(REGISTRY["central_loss"]))) for name in ("one", "two")}
            study["central"] = {name: draw(_centre(tables)) for name in losses}
            study["problem"] |= {"central_loss": losses, "weights": draw(st.sampled_from(
                [{"clients": 0.5, "one": 0.5, "two": 0.5}, {"one": 1.0}, [0.5, 0.5]]))}
    if draw(_one_in(10)):
        study |= draw(_groups())
        if draw(_one_in(2)):
            study["problem"]["group_weights"] = draw(st.sampled_from([{"a": 0.5, "b": 0.5}, {"a": 1.0}, {"a": -1.0}]))
        if draw(_one_in(4)):
            study["problem"]["group_losses"] = {"a": draw(st.sampled_from(["same", "spreadout", "nothing", 3]))}
    for kind in ("aggregate", "engine"):
        if draw(_one_in(8)):
            study[kind] = draw(_more(kind, {"name": draw(st.sampled_from(sorted(REGISTRY[kind])))}))
    if draw(_one_in(8)):
        attack = draw(_more("attack", {"name": draw(st.sampled_from(sorted(REGISTRY["attack"])))}))
        study["byzantine"] = {"name": "byzantine", "attack": draw(st.sampled_from([attack, attack["name"]])), **draw(
            st.sampled_from([{"count": 1}, {"count": 2}, {"clients": ["0"]}, {"clients": []}, {"count": 10**9}, {}]))}
    if draw(_one_in(6)):
        study["stage"] = draw(st.lists(_stage(), min_size=0 if draw(_one_in(10)) else 1, max_size=3))
    if draw(_one_in(3)):
        key = draw(st.sampled_from(sorted(Settings.model_fields)))
        study[key] = draw(of_type(Settings.model_fields[key].annotation,
                                  ["name"]).filter(lambda value: value != "none"))
    return study


@st.composite
def _stage(draw: st.DrawFn) -> Any:
    """A stage that changes some things, sound or not."""
    stage: dict[str, Any] = {"name": draw(st.sampled_from(["one", "two", "three", "four", "a/b", ""]))}
    changes = {
        "rounds": st.sampled_from([1, 2, 0, "none"]), "cohort": st.sampled_from([1, 2, "none", {"a": 1}]),
        "evaluate_clients": st.sampled_from([1, 2, 10**9, "none", 0]), "aggregate": st.sampled_from(["mean", "none"]),
        "problem": st.sampled_from(["none", "all", "output", "*bias"]).map(lambda split: {"split": split}),
        "algorithm": st.one_of(
            st.sampled_from(sorted(REGISTRY["algorithm"])), st.just({"name": "independent", "parts": "private"}),
            st.sampled_from([{"step_size": 0.2}, {"nope": 1}])),
        "clock": st.sampled_from([{"name": "online"}, {"name": "asynchronous"}, {"name": "replay", "path": "e.npz"},
                                  {"cohort": 1}, "rounds"]),
        "seed": st.just(1), "nope": nonsense}
    for key in draw(st.lists(st.sampled_from([*changes, "problem", "algorithm"]), max_size=3, unique=True)):
        stage[key] = draw(changes[key])
    return draw(nonsense) if draw(_one_in(30)) else stage


@st.composite
def _groups(draw: st.DrawFn) -> dict[str, Any]:
    """Groups of clients, and cohorts of them."""
    options = {"by_label": {"labels": {"a": [0], "b": [1, 2]}}, "by_name": {"clients": {"a": ["0"], "b": ["1"]}}}
    name = draw(st.sampled_from(sorted(REGISTRY["groups"])))
    table = draw(_more("groups", {"name": name, **options.get(name, {"names": ["a", "b"]})}))
    cohort = draw(st.sampled_from([None, 1, {"a": 1, "b": 1}, {"a": 1}, {"a": 0, "b": 1}, {"a": 10**9, "b": 1}]))
    return {"groups": table} if cohort is None else {"groups": table, "cohort": cohort}


@st.composite
def _centre(draw: st.DrawFn, tables: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A datacenter: half of the clients, the rows of a label, or data of its own."""
    options = {"from_clients": {"fraction": 0.5}, "from_labels": {"labels": [0]}}
    name = draw(st.sampled_from([*sorted(REGISTRY["central"]), "data"]))
    if name in REGISTRY["central"]:
        return draw(_more("central", {"name": name, **options.get(name, {})}))
    return draw(_more("data", tables[draw(st.sampled_from(sorted(tables)))]))


@st.composite
def _problem(draw: st.DrawFn, name: str) -> dict[str, Any]:
    table: dict[str, Any] = {"name": name}
    for option in parameters("problem", name):
        if option.name in MODELS and (option.default is option.empty or draw(_one_in(4))):
            model = draw(st.sampled_from(["linear", "mlp", *sorted(REGISTRY["model"])]))
            table[option.name] = draw(_more("model", {"name": model, **MODELS_SMALL.get(model, {})}))
        elif option.name == "split" and draw(st.booleans()):
            table["split"] = draw(st.sampled_from(["none", "all", "output", "*bias", "layer0*"]))
    return draw(_more("problem", table))


@st.composite
def _more(draw: st.DrawFn, kind: str, table: dict[str, Any]) -> dict[str, Any]:
    """The table with up to two more options that fit by their type."""
    known = [option for option in _options(kind, table["name"]) if option.name not in MODELS]
    table = dict(table)
    for _ in range(draw(st.sampled_from([0, 0, 1, 2])) if known else 0):
        option = draw(st.sampled_from(known))
        if option.name not in table:
            table[option.name] = draw(_values(kind, table["name"], option.name))
    return table


@cache
def _options(kind: str, name: str) -> list[Any]:
    return list(parameters(kind, name))


@cache
def _values(kind: str, name: str, option: str) -> st.SearchStrategy[Any]:
    (found,) = (each for each in _options(kind, name) if each.name == option)
    return fitting(found, quoted_words(kind, name, option))


@st.composite
def _change(draw: st.DrawFn, study: dict[str, Any]) -> None:
    """Nonsense for one option or setting, an unknown key, a lost key, another name, or no table at all."""
    how = draw(st.integers(0, 15))
    kind = draw(st.sampled_from([kind for kind in TABLES if kind in study]))
    table = study[kind]
    if not isinstance(table, dict):
        return
    if how <= 8:
        kind = "data" if kind == "central" and table.get("name") not in REGISTRY["central"] else kind
        known = _options(kind, str(table["name"])) if str(table.get("name")) in REGISTRY[kind] else []
        if known:
            option = draw(st.sampled_from(known))
            table[option.name] = draw(odd(option.annotation))
    elif how <= 10:
        key = draw(st.sampled_from(sorted(Settings.model_fields)))
        study[key] = draw(odd(Settings.model_fields[key].annotation))
    elif how == 11:
        table["name"] = draw(nonsense)
    elif how == 12:
        place = draw(st.sampled_from([study, table]))
        place[draw(st.sampled_from(["nope", "", "a.b", "é", "name ", "Name", "data"]))] = draw(nonsense)
    elif how == 13:
        place = draw(st.sampled_from([study, table]))
        place.pop(draw(st.sampled_from(sorted(place))))
    elif how == 14:
        study[draw(st.sampled_from(TABLES))] = draw(nonsense)
    else:
        model = next((table[key] for key in MODELS if isinstance(table.get(key), dict)), table)
        model[draw(st.sampled_from(sorted(model)))] = draw(nonsense)


def _one_in(number: int) -> st.SearchStrategy[bool]:
    return st.sampled_from([True] + [False] * (number - 1))


def as_toml(study: dict[str, Any]) -> str:
    """The study as a file; tables of tables stand in one line."""
    plain = [f"{_key(key)} = {_value(value)}" for key, value in study.items() if not isinstance(value, dict)]
    tables = [f"[{_key(name)}]\n" + "\n".join(f"{_key(key)} = {_value(value)}" for key, value in table.items())
              for name, table in study.items() if isinstance(table, dict)]
    return "\n".join([*plain, *tables]) + "\n"


def _key(key: str) -> str:
    return key if key.isidentifier() and key.isascii() else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(key)} = {_value(inner)}' for key, inner in value.items())}}}"
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else repr(value)
