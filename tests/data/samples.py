"""A small sound file for every reader: what tests damage, and what a new reader must add.

`SAMPLES[name](folder)` writes the file, or the folder of files, and gives its path and the options that `DATA[name]`
needs beside it. `VARIANTS` are other formats that the same readers take: {what it is: (reader, maker)}.
"""

from __future__ import annotations

import gzip
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cantons.data import DATA

Sample = Callable[[Path], tuple[Path, dict[str, Any]]]
READERS = sorted(name for name, make in DATA.items() if "path" in inspect.signature(make).parameters)

RANDOM = np.random.default_rng(0)
ROWS = 12
X = RANDOM.normal(size=(ROWS, 3)).round(3).astype(np.float32)
Y = np.arange(ROWS) % 2
WHO = np.repeat(["ann", "bob", "eve"], ROWS // 3)
WHEN = np.arange(ROWS, dtype=float)
NAMED = {"targets": "y", "client": "who"}
WORDS = {"ann": "the cat sat on the mat, the cat sat", "bob": "a dog ran to the cat and the mat ran"}


def csv(folder: Path) -> tuple[Path, dict[str, Any]]:
    lines = ["a,b,c,y,who,when", *(f"{','.join(map(str, x))},{y},{who},{when}"
                                   for x, y, who, when in zip(X.tolist(), Y, WHO, WHEN, strict=True))]
    path = folder / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    return path, {**NAMED, "inputs": ["a", "b", "c"]}


def bandit_log(folder: Path) -> tuple[Path, dict[str, Any]]:
    lines = ["a,b,c,action,reward,propensity,who", *(
        f"{','.join(map(str, x))},{y},{x[0]},{0.25 + y / 2},{who}"
        for x, y, who in zip(X.tolist(), Y, WHO, strict=True))]
    path = folder / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    return path, {"client": "who"}


def npz(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "rows.npz"
    np.savez(path, x=X, y=Y, who=WHO, when=WHEN)
    return path, {"client": "who"}


def npz_compressed(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "rows.npz"
    np.savez_compressed(path, x=X, y=Y, who=WHO)
    return path, {"client": "who"}


def libsvm(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "rows.txt"
    path.write_bytes(_libsvm_lines())
    return path, {"clients": 3}


def libsvm_gz(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "rows.gz"
    path.write_bytes(gzip.compress(_libsvm_lines(), mtime=0))
    return path, {"clients": 3}


def _libsvm_lines() -> bytes:
    return "".join(f"{y} 1:{a} 2:{b} 3:{c}\n" for y, (a, b, c) in zip(Y, X.tolist(), strict=True)).encode()


def parquet(folder: Path) -> tuple[Path, dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    path = folder / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"x": X.tolist(), "y": Y, "who": WHO, "when": WHEN}), path)
    return path, {**NAMED, "inputs": "x"}


def huggingface(folder: Path) -> tuple[Path, dict[str, Any]]:
    import datasets

    datasets.disable_progress_bars()
    path = folder / "rows"
    datasets.Dataset.from_dict({"x": X.tolist(), "y": Y.tolist(), "who": WHO.tolist()}).save_to_disk(path)
    return path, {**NAMED, "inputs": "x"}


def hdf5(folder: Path) -> tuple[Path, dict[str, Any]]:
    import h5py

    path = folder / "rows.h5"
    with h5py.File(path, "w") as file:
        for name in np.unique(WHO):
            file[f"examples/{name}/pixels"] = X[name == WHO]
            file[f"examples/{name}/label"] = Y[name == WHO]
    return path, {}


def leaf(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "rows.json"
    path.write_text(json.dumps(leaf_content({name: (X[name == WHO].tolist(), Y[name == WHO].tolist())
                                             for name in np.unique(WHO)})))
    return path, {}


def leaf_text(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "lines.json"
    path.write_text(json.dumps(leaf_content({name: ([words[:8], words[8:16]], [words[8], words[16]])
                                             for name, words in WORDS.items()})))
    return path, {}


def leaf_content(users: dict[str, tuple[list, list]]) -> dict[str, Any]:
    return {"users": list(users), "num_samples": [len(y) for _, y in users.values()],
            "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()}}


def movielens(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "ratings.csv"
    path.write_text("userId,movieId,rating,timestamp\n" + _ratings(","))
    return path, {}


def movielens_dat(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "ratings.dat"
    path.write_text(_ratings("::"))
    return path, {}


def movielens_npz(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "ratings.npz"
    user, movie, rating, timestamp = np.array([line.split(",") for line in _ratings(",").split()], float).T
    np.savez(path, user=user.astype(int), movie=movie.astype(int), rating=rating, timestamp=timestamp)
    return path, {}


def _ratings(separator: str) -> str:
    return "".join(separator.join(map(str, (row % 3 + 1, row % 4 + 10, row % 5 + 1, 1000 + row))) + "\n"
                   for row in range(ROWS))


def stream(folder: Path) -> tuple[Path, dict[str, Any]]:
    path, options = csv(folder)
    return path, {**options, "time": "when"}


def stream_npz(folder: Path) -> tuple[Path, dict[str, Any]]:
    return npz(folder)[0], {**NAMED, "time": "when"}


def stream_parquet(folder: Path) -> tuple[Path, dict[str, Any]]:
    path, options = parquet(folder)
    return path, {**options, "time": "when"}


def text(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "books"
    path.mkdir()
    for name, words in WORDS.items():
        (path / f"{name}.txt").write_text(words)
    return path, {"length": 4}


def text_npz(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "books.npz"
    pieces = [words.encode() for words in WORDS.values()]
    np.savez(path, text=np.frombuffer(b"".join(pieces), np.uint8), client_start=np.cumsum([0, *map(len, pieces)]))
    return path, {"length": 4}


SAMPLES: dict[str, Sample] = {"bandit_log": bandit_log, "csv": csv, "hdf5": hdf5, "huggingface": huggingface,
                              "leaf": leaf, "libsvm": libsvm, "movie_sequences": movielens, "movielens": movielens,
                              "npz": npz, "parquet": parquet, "stream": stream, "text": text}
VARIANTS: dict[str, tuple[str, Sample]] = {
    "leaf, strings": ("leaf", leaf_text), "libsvm, gzipped": ("libsvm", libsvm_gz),
    "movielens, .dat": ("movielens", movielens_dat), "movielens, .npz": ("movielens", movielens_npz),
    "npz, compressed": ("npz", npz_compressed), "stream, .npz": ("stream", stream_npz),
    "stream, .parquet": ("stream", stream_parquet), "text, .npz": ("text", text_npz)}
