"""Command lines: the words of the commands' own parameters, with fitting and with odd values."""

from __future__ import annotations

import shlex
from typing import Any

import click
from fuzz.values import NUMBERS, WORDS, parameters
from hypothesis import strategies as st

from cantons.cli.main import cantons
from cantons.study.read import TABLES, Settings
from cantons.study.registry import REGISTRY

# What lies in the folder of a case: studies, a run folder, rows, and files that are nobody's business.
PATHS = ["rounds.toml", "csv.toml", "online.toml", "run", "sound", "x.npy", "x.npz", "rows.csv", "thesis.tex", "notes"]
INSIDE = ["missing.toml", "", ".", "run/study.json", "thesis.tex/x", "new", "new/deep/er", "a" * 300, "é", "-",
          "x.html"]
OUTSIDE = ["..", "/", "/dev/null", "../outside",
           "../outside/letter.txt"]  # to read from: who writes there, asked for it
PARTS = sorted({name for parts in REGISTRY.values() for name in parts})
ODD = [str(value) for value in NUMBERS if len(str(value)) < 100] + [word for word in WORDS if "\0" not in word]
by_kind = {"study": ["rounds.toml", "csv.toml", "online.toml"], "studies": ["rounds.toml", "csv.toml", "online.toml"],
           "folder": ["run", "sound"], "folders": ["run", "sound"], "rows": ["x.npy", "x.npz", "rows.csv"],
           "keep": ["a", "who", ""],
           "kind": sorted(REGISTRY), "name": PARTS + ["rounds.toml", "cantons.algorithm:fedavg"],
           "client": ["0", "1", "ann"], "array": ["x", "y"],
           "reference": ["rounds", "fedavg"], "plot": ["new.png", "new.svg", "thesis.tex"],
           "methods": [*REGISTRY["algorithm"], "fedavg; rounds=1", "scaffold; problem.split=*bias; name=a", "cohort=2"],
           "save": ["new", "thesis.tex", "notes"], "out": ["new", "results/x", "run", "sound", "x.html", "thesis.tex"]}


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    name = draw(st.sampled_from(sorted(cantons.commands)))
    words = [name if draw(st.integers(0, 30)) else draw(st.sampled_from(ODD))]
    arguments, options = [], []
    for parameter in cantons.commands[name].params:
        needed = parameter.required or isinstance(parameter, click.Argument)
        if draw(st.integers(0, 9)) >= (9 if needed else 4):
            continue
        for _ in range(draw(st.sampled_from([1, 1, 2])) if parameter.multiple or parameter.nargs == -1 else 1):
            value = [] if getattr(parameter, "is_flag", False) else [draw(_value(parameter))]
            if isinstance(parameter, click.Argument):
                arguments += value
            else:
                options += [draw(st.sampled_from(parameter.opts)), *value]
    words += arguments + options if draw(st.booleans()) else options + arguments
    if draw(st.integers(0, 20)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(st.sampled_from(["--nope", "-h", "--", "--out", *ODD])))
    return words


@st.composite
def _value(draw: st.DrawFn, parameter: click.Parameter) -> str:
    """One word for a parameter: one in six is odd."""
    name, odd = str(parameter.name), draw(st.integers(0, 5)) == 0
    if isinstance(parameter.type, click.IntRange):
        return draw(st.sampled_from(["0", "-1", "x", "9" * 30, "1e3", "", "2147483648"] if odd else ["1", "2", "3"]))
    if name in ("changes", "grids"):
        return draw(_change(odd, name == "grids"))
    if isinstance(parameter.type, click.Path):
        anywhere = INSIDE + PATHS + OUTSIDE * (name not in ("out", "plot", "save"))
        return draw(st.sampled_from(anywhere if odd else by_kind.get(name, PATHS)))
    return draw(st.sampled_from(ODD + by_kind.get(name, []) if odd else by_kind.get(name, ["x"])))


@st.composite
def _change(draw: st.DrawFn, odd: bool, several: bool) -> str:
    """key=value, or key=a,b,c."""
    kind = draw(st.sampled_from(["", *TABLES, "data", "algorithm"]))
    if kind == "":
        key = draw(st.sampled_from(sorted(Settings.model_fields)))
    else:
        part = draw(st.sampled_from(sorted(REGISTRY[kind])))
        names = [option.name for option in parameters(kind, part)] + ["name"]
        key = draw(st.sampled_from([f"{kind}.", "", f"{kind}.x."])) if odd else f"{kind}."
        key += draw(st.sampled_from(names))
    values = draw(st.lists(st.sampled_from(ODD if odd else ["1", "2", "0.1", "0.5", "true", "none", "[3]", "sgd"]),
                           min_size=1, max_size=3 if several else 1))
    return key + draw(st.sampled_from(["=", "==", "", ":"] if odd else ["="])) + ",".join(values)


def describe(words: list[Any]) -> str:
    return f"cantons {shlex.join(words)}"
