"""Run the small studies in one source tree and write down their numbers, for same_bits.py.

    PYTHONPATH=TREE python benchmarks/write_bits.py TREE OUT --shipped TREE/studies

OUT/NAME.json has each row of a study's history but the times, each client's column, and the trained model. JSON gives
every float as many digits as it takes to read the same bits back. A study that raises leaves its error there.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import traceback
from pathlib import Path
from typing import Any

import jax
import numpy as np
from small_studies import STUDIES

import cantons as ct

TIMES = ("seconds", "seconds_per_round", "updates_per_second", "evaluation_seconds")


def contents(found: Any) -> dict[str, Any]:
    """History, clients and model of a result or a run folder, the rows of a history, or several of these by name."""
    if isinstance(found, dict):
        return {name: contents(one) for name, one in found.items()}
    if isinstance(found, list):
        return {"history": without_times(found)}
    if isinstance(found, Path):
        return {"history": without_times([json.loads(line) for line in (found / "metrics.jsonl").open()]),
                "clients": columns_of(found / "clients.csv"), "model": parts(ct.load(found))}
    return {"history": without_times(found.history),
            "clients": {name: bits(column) for name, column in found.clients.items()}, "model": parts(found.model)}


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value.item() if isinstance(value, np.generic) else value for name, value in row.items()
             if name not in TIMES} for row in rows]


def columns_of(path: Path) -> dict[str, list[str]]:
    with path.open(newline="") as file:
        return {name: column for name, *column in zip(*csv.reader(file), strict=True)}


def parts(model: ct.Trained) -> dict[str, Any]:
    """(shared, private) for nobody in particular, and for the first client and the last."""
    whose = {"nobody in particular": None, "the first client": 0, "the last client": model.population - 1}
    return {who: {jax.tree_util.keystr(path): bits(leaf) for path, leaf in
                  jax.tree_util.tree_flatten_with_path(model.parts(client))[0]} for who, client in whose.items()}


def bits(column: Any) -> dict[str, Any]:
    array = np.asarray(column)
    return {"dtype": str(array.dtype), "values": array.tolist()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, help="the source tree that is to be run")
    parser.add_argument("out", type=Path, help="a folder for the results")
    parser.add_argument("--shipped", type=Path, required=True, help="the folder of the study files")
    parser.add_argument("--only", nargs="+", choices=STUDIES, default=list(STUDIES), metavar="NAME",
                        help=f"some of the studies: {', '.join(STUDIES)}")
    options = parser.parse_args()

    imported = Path(ct.__file__).resolve()
    if not imported.is_relative_to(options.tree.resolve()):
        parser.error(f"imported {imported}, which is not in {options.tree}; set PYTHONPATH to the tree.")
    for number, name in enumerate(options.only):
        began, folder = time.perf_counter(), options.out.resolve() / "folders" / str(number)
        folder.mkdir(parents=True)
        try:
            found = contents(STUDIES[name](folder, options.shipped.resolve()))
        except Exception as error:  # this study's; the others go on
            traceback.print_exc()
            found = {"error": f"{type(error).__name__}: {error}"}
        (options.out / f"{number:02}.json").write_text(json.dumps({"study": name, "found": found}))
        print(f"  {name:24}{time.perf_counter() - began:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
