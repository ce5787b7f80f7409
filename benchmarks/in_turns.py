"""Is one source tree slower than another? The workloads of rounds.py and online.py in both, in turns.

    python benchmarks/in_turns.py OLD NEW [--repeats 5]

In a turn both trees run the same script, one right after the other, each in a process of its own; who goes first
changes from turn to turn. The scripts are those beside this one. The ratio is taken within a turn, so that whatever
keeps the machine busy for longer slows both. The table has medians over turns, with the extremes in brackets. On a busy
machine the last column says more: the fastest window of NEW over the fastest of OLD.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODELS = ("linear", "mlp", "cnn")


def measure(tree: Path, script: str, *words: str) -> dict[str, list[float]]:
    """Milliseconds per round or step of each workload, window by window, with the library of `tree`."""
    done = subprocess.run([sys.executable, str(HERE / script), "--json", *words], stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "PYTHONPATH": str(tree)})
    if done.returncode:
        sys.exit(f"{script} ended with {done.returncode} in {tree}.")
    found = json.loads(done.stdout)
    if not Path(found["imported"]).resolve().is_relative_to(tree):
        sys.exit(f"{script} imported {found['imported']}, which is not in {tree}.")
    if script == "rounds.py":
        return {f"FedAvg, {row['model']}": row["cantons_ms"] for row in found["rounds"]}
    return {row["what"]: [window / 1e3 for window in row["windows_us"]] for row in found["rows"]}


def table(turns: dict[str, list[tuple[list[float], list[float]]]]) -> str:
    """`turns` are {workload: [(windows of OLD, windows of NEW), ...]}."""
    lines = ["| workload | old ms | new ms | new / old | fastest new / old |", "| --- | --- | --- | --- | --- |"]
    for workload, pairs in turns.items():
        old, new = ([statistics.median(windows) for windows in side] for side in zip(*pairs, strict=True))
        ratios = [after / before for before, after in zip(old, new, strict=True)]
        fastest_old, fastest_new = (min(map(min, side)) for side in zip(*pairs, strict=True))
        lines.append(f"| {workload} | {spread(old)} | {spread(new)} | {spread(ratios)} | "
                     f"{short(fastest_new / fastest_old)} |")
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    return f"{short(statistics.median(values))} ({short(min(values))}..{short(max(values))})"


def short(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, metavar="OLD", help="a source tree")
    parser.add_argument("new", type=Path, metavar="NEW", help="another one")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each tree")
    parser.add_argument("--windows", type=int, default=3, help="windows of each workload in a turn")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS), help="of rounds.py; may be none")
    parser.add_argument("--no-online", action="store_true", help="leave online.py out")
    options = parser.parse_args()

    trees = {"old": options.old.resolve(), "new": options.new.resolve()}
    commands = [("rounds.py", "--alone", "--models", model) for model in options.models]
    commands += [] if options.no_online else [("online.py",)]
    turns: dict[str, list[tuple[list[float], list[float]]]] = defaultdict(list)
    for turn in range(options.repeats):
        order = ["old", "new"] if turn % 2 == 0 else ["new", "old"]
        for command in commands:
            print(f"turn {turn + 1} of {options.repeats}: {' '.join(command)}", file=sys.stderr, flush=True)
            found = {which: measure(trees[which], *command, "--repeats", str(options.windows)) for which in order}
            for workload, windows in found["old"].items():
                turns[workload].append((windows, found["new"][workload]))
    print(table(turns))


if __name__ == "__main__":
    main()
