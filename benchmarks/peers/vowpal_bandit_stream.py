"""Vowpal Wabbit's contextual bandits on clients' contexts: ask for chances, draw an action, learn from its reward.

Reads {"folder": ..., "shape": [clients, steps, actions, features], "processes": ..., "jobs": [[seed, layout, options],
...]} from stdin; the folder has float32 in SEED.inputs, of that shape, and SEED.rewards, of all but its last axis.
Writes {"version": ..., "played": [{"actions": [clients][steps], "seconds": ...}, ...]}, one for each job. Only the
standard library is there.
"""

from __future__ import annotations

import json
import sys
import time
from array import array
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from random import Random

import vowpalwabbit


def read(path: Path) -> array:
    found = array("f")
    found.frombytes(path.read_bytes())
    return found


def line(row: array, client: int, layout: str) -> str:
    """An action. Global features come first; a namespace for each client gives local ones weights of their own."""
    words = [f"{column}:{value:.7g}" for column, value in enumerate(row)]
    half = len(words) // 2
    if layout == "shared":
        return f"|g {' '.join(words[:half])}"
    return f"|g {' '.join(words[:half])} |l{client if layout == 'joint' else ''} {' '.join(words[half:])}"


def played(folder: Path, shape: list[int], job: tuple[int, str, str]) -> dict[str, object]:
    (clients, steps, actions, features), (seed, layout, options) = shape, job
    inputs, rewards = read(folder / f"{seed}.inputs"), read(folder / f"{seed}.rewards")
    count = clients if layout == "alone" else 1
    workspaces = [vowpalwabbit.Workspace(f"--cb_explore_adf {options} --quiet") for _ in range(count)]
    draws = [Random(f"{seed} {client}") for client in range(clients)]
    chosen: list[list[int]] = [[] for _ in range(clients)]
    began = time.perf_counter()
    for step in range(steps):  # in a workspace of all, clients take turns
        for client in range(clients):
            first = (client * steps + step) * actions
            lines = [line(inputs[row * features:(row + 1) * features], client, layout)
                     for row in range(first, first + actions)]
            workspace = workspaces[client % count]
            chances = workspace.predict(lines)
            action = draws[client].choices(range(actions), chances)[0]
            lines[action] = f"0:{-rewards[first + action]:.7g}:{chances[action]:.7g} {lines[action]}"
            workspace.learn(lines)
            chosen[client].append(action)
    for workspace in workspaces:
        workspace.finish()
    print(seed, layout, options, file=sys.stderr, flush=True)
    return {"actions": chosen, "seconds": time.perf_counter() - began}


if __name__ == "__main__":
    work = json.load(sys.stdin)
    with ProcessPoolExecutor(work["processes"]) as pool:
        found = list(pool.map(partial(played, Path(work["folder"]), work["shape"]), work["jobs"]))
    json.dump({"version": vowpalwabbit.__version__, "played": found}, sys.stdout)
