"""Kill commands at their file operations, call them again, and compare the end with commands nobody disturbed.

    python tests/study/kill_and_resume.py --kills 100

A run, an online run, an asynchronous run, a run with a datacenter, one in stages, a sweep, a comparison, a tuned
comparison and a run with local models are each killed at points spread over all their file operations, from the first
to the last, so that every file is once half written. Every other one is killed a second time while it goes on. In the
end states, evaluations (but for the clock's readings) and events must have the same bits.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import tempfile
import time
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "study"), str(TESTS / "local_models")]
TIMES = ("seconds", "seconds_per_round", "updates_per_second", "evaluation_seconds")
DIED = 137

STUDY = """
rounds = 6
cohort = 3
evaluate_every = 2
checkpoint_every = 2

[data]
name = "synthetic"
clients = 5
features = 4
largest = 40

[problem]
name = "logistic"
split = "*bias"

[algorithm]
name = "scaffold"
batch_size = 8
"""
ONLINE = """
rounds = 12
evaluate_every = 4
checkpoint_every = 3

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
"""
ASYNCHRONOUS = STUDY.replace("cohort = 3\n", "").replace("rounds = 6", "rounds = 12") + """
[clock]
name = "asynchronous"
concurrency = 4
buffer = 2
durations = { name = "log_normal", jitter = 0.5 }
"""
MIXED = """
rounds = 6
cohort = 3
evaluate_every = 2
checkpoint_every = 2

[data]
name = "synthetic"
clients = 8
features = 4
largest = 40

[central]
name = "from_clients"
fraction = 0.5

[problem]
name = "logistic"
split = "*bias"
central_loss = "same"

[algorithm]
name = "two_way_transfer"
batch_size = 4
central_batch_size = 8
central_private = "trained"
"""
STAGES = STUDY.replace("rounds = 6", "rounds = 4").replace("[problem]\nname = \"logistic\"\nsplit = \"*bias\"\n", """
[problem]
name = "logistic"

[[stage]]
name = "pretraining"
algorithm = { name = "fedavg", batch_size = 8 }

[[stage]]
name = "training"
problem.split = "*bias"

[[stage]]
name = "tuning"
rounds = 2
problem.split = "*bias"
algorithm = { name = "independent", parts = "private", batch_size = 8 }
""")
KINDS = ("run", "online", "asynchronous", "mixed", "stages", "sweep", "compare", "tune", "local models")


def command(study: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "cantons.cli.main", "run", str(study), "--out", str(out), "--resume"]


def play(kind: str, folder: Path, out: Path) -> str:
    """Begin it, or go on with it; a digest of everything it knows at its end."""
    from click.testing import CliRunner

    from cantons.cli.main import cantons

    if kind == "local models":
        import resumable_run

        return resumable_run.digest(resumable_run.play(out, rounds=12, resume=True))
    texts = {"run": STUDY, "online": ONLINE, "asynchronous": ASYNCHRONOUS, "mixed": MIXED, "stages": STAGES,
             "second": STUDY.replace("scaffold", "fedavg")}
    for name, text in texts.items():
        (folder / f"{name}.toml").write_text(text)
    words = {"run": ["run", "run.toml", "--resume"], "online": ["run", "online.toml", "--resume"],
             "asynchronous": ["run", "asynchronous.toml", "--resume"],
             "mixed": ["run", "mixed.toml", "--resume"], "stages": ["run", "stages.toml", "--resume"],
             "sweep": ["sweep", "run.toml", "--grid", "algorithm.step_size=0.05,0.1", "--seeds", "1"],
             "compare": ["compare", "run.toml", "second.toml", "--seeds", "1", "--rounds", "4"],
             "tune": ["compare", "run.toml", "second.toml", "--seeds", "1", "--rounds", "2", "--tune",
                      "algorithm.step_size=0.05,0.1", "--tune-seeds", "1"]}[kind]
    os.chdir(folder)
    done = CliRunner().invoke(cantons, [*words, "--out", str(out)], catch_exceptions=False)
    if done.exit_code:
        raise SystemExit(done.output)
    return final_bytes(out)


def final_bytes(out: Path) -> str:
    """A digest of what finished runs know: the state and the evaluations of every run folder in `out`."""
    import jax

    from cantons.errors import Notice
    from cantons.study.load import load

    digest = hashlib.sha256()
    for study in sorted(out.rglob("study.json")):
        digest.update(str(study.relative_to(out)).encode())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Notice)  # the run's process may have had fewer devices
            state = load(study.parent).state
        for leaf in jax.tree.leaves(state):
            digest.update(leaf.tobytes())
        for events in study.parent.glob("events.npz"):
            digest.update(events.read_bytes())
        for line in (study.parent / "metrics.jsonl").read_text().splitlines():
            row = {key: value for key, value in json.loads(line).items() if key not in TIMES}
            digest.update(json.dumps(row, sort_keys=True).encode())
    return digest.hexdigest()


class Ended(NamedTuple):
    """How one process ended: its exit code, its file operations, and the digest or what it complained of."""

    code: int
    operations: int
    said: str


def in_a_child(kind: str, folder: Path, at: int) -> Ended:
    """Play it in a process of its own that dies at file operation `at`; 0: never.

    The process is forked from this one, in which all is imported and JAX has not begun: that saves most of its time.
    """
    from die_at import Death

    import cantons.cli.main
    import cantons.cli.show
    import cantons.reporting
    import cantons.study.load
    import cantons.study.sweep  # noqa: F401

    said = folder / "said"
    said.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            death = Death(at, folder / "out")
            death.watch()
            words = play(kind, folder, folder / "out")
            code = 0
        except BaseException:
            words, code = traceback.format_exc()[-3000:], 1
        said.write_text(json.dumps([death.count, words]))
        os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, *(json.loads(said.read_text()) if said.exists() else (0, "killed")))


class Chain(NamedTuple):
    """What came of killing one command and calling it again until it ended."""

    kind: str
    points: list[int]
    kills: int
    said: str  # the digest, or what went wrong


def kill_and_resume(kind: str, folder: Path, points: list[int]) -> Chain:
    """Kill it at these points, one process after the other, and let the last one end."""
    folder.mkdir()
    kills = 0
    for at in [*points, 0]:
        ended = in_a_child(kind, folder, at)
        kills += ended.code == DIED
        if ended.code not in (0, DIED):
            return Chain(kind, points, kills, f"exit code {ended.code} after kills at {points}: {ended.said}")
    return Chain(kind, points, kills, ended.said)


def kill_points(operations: int, count: int, seed: int) -> list[list[int]]:
    """`count` points spread evenly over 1 .. operations; every other has a second one, anywhere."""
    dice = random.Random(seed)
    firsts = [1 + round(index * (operations - 1) / max(1, count - 1)) for index in range(count)]
    return [[first, dice.randint(1, operations)] if place % 2 else [first] for place, first in enumerate(firsts)]


def check(kinds: list[str], kills: int, seed: int, processes: int) -> int:
    """Print a line for each kind; the number of chains that did not end alike."""
    began, wrong, total = time.monotonic(), 0, 0
    with (tempfile.TemporaryDirectory() as name,
          ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool):
        place = Path(name)
        for kind in kinds:
            (place / f"calm {kind}").mkdir()
        undisturbed = pool.map(in_a_child, kinds, [place / f"calm {kind}" for kind in kinds], [0] * len(kinds))
        calm = dict(zip(kinds, undisturbed, strict=True))
        chains = []
        for index, kind in enumerate(kinds):
            if calm[kind].code:
                raise SystemExit(f"{kind} does not end undisturbed: {calm[kind].said}")
            count = kills // len(kinds) + (index < kills % len(kinds))
            for number, points in enumerate(kill_points(calm[kind].operations, count, seed)):
                chains.append(pool.submit(kill_and_resume, kind, place / f"{kind} {number}", points))
        ended = [chain.result() for chain in chains]
    for kind in kinds:
        mine = [chain for chain in ended if chain.kind == kind]
        differ = [chain for chain in mine if chain.said != calm[kind].said]
        total, wrong = total + sum(chain.kills for chain in mine), wrong + len(differ)
        print(f"{kind:<13} {calm[kind].operations:>4} file operations, {sum(chain.kills for chain in mine):>3} kills, "
              f"{len(mine) - len(differ)} of {len(mine)} ends bit-identical")
        for chain in differ:
            print(f"    killed at {chain.points}: {chain.said if ' ' in chain.said else 'another digest'}")
    print(f"{total} kills, {wrong} different ends, {time.monotonic() - began:.0f} s")
    return wrong


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="first kills; second ones come on top")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    for name, value in (("XLA_FLAGS", "--xla_backend_optimization_level=0"), ("JAX_PLATFORMS", "cpu"),
                        ("JAX_COMPILATION_CACHE_DIR", str(TESTS.parent / ".jax_cache")),
                        ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0"),
                        ("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")):
        os.environ.setdefault(name, value)
    return int(check(options.kinds, options.kills, options.seed, options.processes) > 0)


if __name__ == "__main__":
    sys.exit(main())
