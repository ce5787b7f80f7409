"""Run folders of others: files lost, cut, garbled or exchanged, JSON values replaced; then they are used."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fuzz.damage import damaged, damaged_json
from hypothesis import strategies as st

ROUNDS = {
    "rounds": """
rounds = 4
cohort = 2
evaluate_every = 2
checkpoint_every = 2
[data]
name = "synthetic"
clients = 5
features = 3
largest = 40
new = 1
[problem]
name = "logistic"
split = "*bias"
[algorithm]
name = "fedavg"
batch_size = 8
""",
    "csv": """
rounds = 2
precision = "float64"
validation = 0.25
[data]
name = "csv"
path = "rows.csv"
targets = "y"
client = "who"
inputs = ["a", "b", "c"]
scale = "standard"
[problem]
name = "classification"
model = { name = "mlp", hidden = [3] }
split = "output"
[algorithm]
name = "scaffold"
batch_size = 4
""",
    "online": """
rounds = 8
evaluate_every = 4
[data]
name = "drifting_targets"
clients = 3
steps = 12
[problem]
name = "target"
[algorithm]
name = "fedomd"
[clock]
name = "online"
uplink = 1
""",
}
USES = ["load", "report", "predict", "export", "resume", "resume", "sweep", "compare", "report two"]


class FolderCase(NamedTuple):
    base: str
    writes: dict[str, bytes | None]  # None: the file is gone
    use: str
    words: tuple[str, ...]


def make_bases(folder: Path) -> None:
    """Finished runs, one of each kind, in `folder`."""
    from click.testing import CliRunner
    from data.samples import csv

    from cantons.cli.main import cantons

    csv(folder)
    for name, text in ROUNDS.items():
        (folder / f"{name}.toml").write_text(text)
        done = CliRunner().invoke(cantons, ["run", str(folder / f"{name}.toml"), "--out", str(folder / name)])
        assert done.exit_code == 0, done.output
    np.save(folder / "x.npy", np.ones((2, 3), np.float32))
    np.savez(folder / "x.npz", x=np.ones((2, 3), np.float32))


def read_bases(folder: Path) -> dict[str, dict[str, bytes]]:
    """What the run folders hold, file by file."""
    return {name: {str(file.relative_to(folder / name)): file.read_bytes()
                   for file in sorted((folder / name).rglob("*")) if file.is_file()} for name in ROUNDS}


@st.composite
def damaged_folders(draw: st.DrawFn, bases: dict[str, dict[str, bytes]]) -> FolderCase:
    base = draw(st.sampled_from(sorted(bases)))
    files = bases[base]
    outer = [name for name in files if "/" not in name]
    writes: dict[str, bytes | None] = {}
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        name = draw(st.sampled_from(outer * 4 + sorted(files)))
        other = bases[draw(st.sampled_from(sorted(bases)))]
        how = draw(st.integers(0, 11))
        if how == 0:
            writes[name] = None
        elif how == 1:  # a whole folder is gone
            top = name.rpartition("/")[0]
            writes |= {each: None for each in files if top and each.startswith(top)} or {name: None}
        elif how == 2 and name in other:
            writes[name] = other[name]
        elif how == 3:  # the checkpoints of another run
            writes |= {each: None for each in files if each.startswith("checkpoints/")}
            writes |= {each: content for each, content in other.items() if each.startswith("checkpoints/")}
        elif name.endswith(".jsonl") and how > 5:
            writes[name] = draw(_lines(files[name]))
        elif name.endswith(".json") and how > 5:
            writes[name] = draw(damaged_json(files[name]))
        else:
            writes[name] = draw(damaged(files[name]))
    use = draw(st.sampled_from(USES))
    words = [draw(st.sampled_from(["x.npy", "x.npz", "rows.csv"]))] if use == "predict" else []
    if use == "predict" and draw(st.booleans()):
        words += ["--client", draw(st.sampled_from(["0", "1", "ann", "-1", "99", "²", "", "9" * 30, "1.5"]))]
    return FolderCase(base, writes, use, tuple(words))


@st.composite
def _lines(draw: st.DrawFn, content: bytes) -> bytes:
    """One evaluation of several is other JSON, lost or doubled."""
    lines = content.splitlines()
    place = draw(st.integers(0, len(lines) - 1))
    lines[place] = draw(st.one_of(damaged_json(lines[place]), damaged(lines[place]), st.sampled_from([
        b"", b"[]", b"{}", b"null", b"1", b'{"round": null}', b'{"round": "a"}', b'{"round": 1e400}', lines[0]])))
    return b"\n".join(lines) + draw(st.sampled_from([b"\n", b"", b"\0"]))


def lay_out(case: FolderCase, bases: Path, folder: Path) -> None:
    """The damaged folder as `run`, and beside it a sound one, the study and rows to predict on."""
    shutil.copytree(bases / case.base, folder / "run")
    shutil.copytree(bases / "rounds", folder / "sound")
    for name in ("x.npy", "x.npz", "rows.csv", f"{case.base}.toml"):
        shutil.copy(bases / name, folder / name)
    for name, content in case.writes.items():
        path = folder / "run" / name
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def command(case: FolderCase) -> list[str] | None:
    """What is typed; None: `load` in Python."""
    study = f"{case.base}.toml"
    return {"load": None, "report": ["report", "run"], "report two": ["report", "sound", "run", "--out", "both.html"],
            "predict": ["predict", *case.words, "--run", "run"], "export": ["export", "--run", "run"],
            "resume": ["run", study, "--out", "run", "--resume", "--rounds", "9"],
            "sweep": ["sweep", study, "--grid", "rounds=4", "--seeds", "1", "--out", "."],
            "compare": ["compare", study, "--seeds", "1", "--out", "."]}[case.use]


def describe(case: FolderCase) -> str:
    shown: dict[str, Any] = {name: None if content is None else content[:1500] for name, content in case.writes.items()}
    return f"{case.base}: {' '.join(command(case) or ['load'])}\n{json.dumps(shown, default=repr, indent=1)}"
