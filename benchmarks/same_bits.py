"""Do two source trees compute the same numbers, bit for bit?

    python benchmarks/same_bits.py OLD NEW [--only NAME ...]

For a change that is to move code and nothing else. Each tree runs the studies of small_studies.py, the same ones, in a
process of its own; the study files are OLD's. Every row of their histories is compared but for the times, each
client's column, and the trained model. What only NEW has is listed and does no harm; what only OLD has is a difference.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
CACHE = {  # unless the user has chosen otherwise: compiling is most of the work
    "JAX_COMPILATION_CACHE_DIR": str(HERE.parent / ".jax_cache"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


class Difference(NamedTuple):
    where: tuple[str, ...]
    old: Any
    new: Any


class Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING = Missing()


def run_studies(tree: Path, out: Path, shipped: Path, only: list[str]) -> int:
    """Write the numbers of the studies to `out`; not 0 if the process broke down, and then some may be missing."""
    inherited = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}  # compile as users do
    # Through the environment, so that commands which a study starts do likewise.
    environment = CACHE | inherited | {"PYTHONPATH": str(tree), "JAX_NUM_CPU_DEVICES": "2"}
    out.mkdir()
    command = [sys.executable, str(HERE / "write_bits.py"), str(tree), str(out), "--shipped", str(shipped)]
    return subprocess.run(command + (["--only", *only] if only else []), env=environment, cwd=out).returncode


def read(out: Path) -> dict[str, Any]:
    pages = [json.loads(path.read_text()) for path in sorted(out.glob("*.json"))]
    return {page["study"]: page["found"] for page in pages}


def differences(old: Any, new: Any, where: tuple[str, ...] = ()) -> Iterator[Difference]:
    """Whatever OLD has and NEW has not, or has otherwise. Floats are compared as JSON writes them: exactly, and so that
    one NaN is another and 0.0 is not -0.0."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            yield from differences(value, new.get(key, MISSING), (*where, key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differences(one, other, (*where, place(index, one)))
    elif new is MISSING or json.dumps(old) != json.dumps(new):
        yield Difference(where, old, new)


def place(index: int, item: Any) -> str:
    return f"round {item['round']}" if isinstance(item, dict) and "round" in item else str(index)


def additions(old: Any, new: Any) -> Iterator[str]:
    """Names that only NEW has."""
    if isinstance(old, dict) and isinstance(new, dict):
        yield from (key for key in new if key not in old)
        for key in old.keys() & new.keys():
            yield from additions(old[key], new[key])
    elif isinstance(old, list) and isinstance(new, list):
        for one, other in zip(old, new, strict=False):
            yield from additions(one, other)


def count(tree: Any) -> int:
    if isinstance(tree, dict | list):
        return sum(map(count, tree.values() if isinstance(tree, dict) else tree))
    return 1


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def verdict(old: dict[str, Any], new: dict[str, Any]) -> tuple[bool, str]:
    """Is a study the same in both, and a sentence about it."""
    for which, found in (("OLD", old), ("NEW", new)):
        if "error" in found:
            return False, f"error in {which}: {found['error']}"
    if not count(old):
        return False, "error: there is nothing to compare"
    found = list(differences(old, new))
    if not found:
        return True, f"same ({count(old):,} values)"
    first = found[0]
    return False, (f"differs: {', '.join(first.where)}: {short(first.old)} in OLD, {short(first.new)} in NEW "
                   f"({len(found):,} of {count(old):,} values differ)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, metavar="OLD", help="a source tree")
    parser.add_argument("new", type=Path, metavar="NEW", help="another one")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="some of the studies")
    options = parser.parse_args()
    trees = {"OLD": options.old.resolve(), "NEW": options.new.resolve()}

    good, added = True, defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        for which, tree in trees.items():
            print(f"{which}: {tree}", flush=True)
            code = run_studies(tree, Path(name) / which, trees["OLD"] / "studies", options.only)
            if code:
                print(f"  the studies of {which} ended with {code}")
            good = good and code == 0
        old, new = (read(Path(name) / which) for which in trees)

    for study in old | new:
        before, after = (found.get(study, {"error": "it did not run"}) for found in (old, new))
        same, sentence = verdict(before, after)
        good = good and same
        print(f"{study:24}{sentence}")
        for column in set(additions(before, after)) - {"error"}:
            added[column].append(study)
    for column, studies in sorted(added.items()):
        print(f"only in NEW: {column} (in {len(studies)} of {len(new)} studies)")
    print("all the same" if good else "NOT the same")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
