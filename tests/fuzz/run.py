"""Try many mutated studies, files, run folders and command lines: each must work or be refused in a sentence.

    python tests/fuzz/run.py --cases 10000 --seed 0       all kinds, in two processes
    python tests/fuzz/run.py --seed 0 --case 4711         one case again, with what happened to it
    python tests/fuzz/run.py --only file --cases 1000   one kind

The same seed gives the same cases as long as the strategies and the options of the parts stay as they are. Failures are
printed, and written to build/fuzz/ with all that is needed to see them again.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
BATCH = 400  # cases of one process: what compiled programs take is given back at its end
MEMORY = 12 << 30  # bytes of address space of a process; JAX asks for some of it without using it


def prepare() -> None:
    """As the tests do: compile fast rather than well, and keep what was compiled."""
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("MPLCONFIGDIR", str(ROOT / "build" / "fuzz" / "matplotlib"))
    os.environ.setdefault("HF_DATASETS_OFFLINE", "1")


def play_batch(shared: Path, own: Path, seed: int, numbers: list[int], log: Path) -> None:
    """Some cases in this process; every verdict is a line of `log`, and so is the beginning of each case."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from fuzz.cases import World

    world = World(shared, own)
    with log.open("a") as lines:
        for number in numbers:
            lines.write(json.dumps({"begins": number}) + "\n")
            lines.flush()
            lines.write(json.dumps(world.play(seed, number)._asdict()) + "\n")
            lines.flush()


class Worker:
    """A share of the cases, in one process after the other; one that dies is followed by the next."""

    def __init__(self, shared: Path, place: Path, seed: int, numbers: list[int]):
        self.shared, self.place, self.seed, self.left = shared, place, seed, numbers
        self.process: subprocess.Popen | None = None
        self.batches, self.read = 0, 0

    def look(self) -> list[dict]:
        """New verdicts; starts the next process when the last one is over."""
        found: list[dict] = []
        over = self.process is not None and self.process.poll() is not None
        if self.process is not None:
            lines = (self.log.read_text() if self.log.exists() else "").splitlines(keepends=True)
            new = [json.loads(line) for line in lines[self.read:] if line.endswith("\n")]
            self.read += len(new)
            found = [each for each in new if "outcome" in each]
            begun = [each["begins"] for each in new if "begins" in each]
            self.begun = begun[-1] if begun else self.begun
            done = {each["number"] for each in found}
            self.left = [number for number in self.left if number not in done]
            if over and self.process.returncode:
                if self.begun is None or self.begun not in self.left:
                    raise SystemExit(f"a worker does not start: {self.errors.read_text()[-2000:]}")
                found.append({"number": self.begun, "kind": kind_of(self.begun), "outcome": "failed",
                              "case": "see --case",
                              "why": f"the process died with {self.process.returncode}: "
                                     f"{self.errors.read_text()[-1500:]}", "seconds": 0.0})
                self.left.remove(self.begun)
        if (over or self.process is None) and self.left:
            self._start()
        return found

    def _start(self) -> None:
        self.batches += 1
        own = self.place / str(self.batches)
        own.mkdir(parents=True)
        self.log, self.errors, self.read, self.begun = own / "log.jsonl", own / "stderr", 0, None
        (own / "numbers").write_text(json.dumps(self.left[:BATCH]))
        self.process = subprocess.Popen([sys.executable, __file__, "--batch", str(own), "--shared", str(self.shared),
                                         "--seed",
                                         str(self.seed)], stdout=subprocess.DEVNULL, stderr=self.errors.open("w"))

    @property
    def busy(self) -> bool:
        return bool(self.left) or self.process is None or self.process.poll() is None


def kind_of(number: int) -> str:
    from fuzz.cases import KINDS

    return KINDS[number % len(KINDS)]


def fuzz(seed: int, numbers: list[int], processes: int) -> int:
    """Play the cases; print a line of progress, the failures and a table. The number of failures."""
    from fuzz.cases import prepare_shared

    began = time.monotonic()
    report = ROOT / "build" / "fuzz"
    report.mkdir(parents=True, exist_ok=True)
    verdicts: list[dict] = []
    with tempfile.TemporaryDirectory() as name:
        shared = Path(name) / "shared"
        shared.mkdir()
        prepare_shared(shared)
        workers = [Worker(shared, Path(name) / str(index), seed, numbers[index::processes])
                   for index in range(processes)]
        failed = (report / f"failures-{seed}.jsonl").open("w")
        while any(worker.busy for worker in workers):
            for worker in workers:
                for verdict in worker.look():
                    verdicts.append(verdict)
                    if verdict["outcome"] == "failed":
                        failed.write(json.dumps(verdict) + "\n")
                        failed.flush()
                        print(f"\rFAILED seed {seed} case {verdict['number']} ({verdict['kind']}): "
                              f"{verdict['why'][:400]}", flush=True)
            bad = sum(verdict["outcome"] == "failed" for verdict in verdicts)
            if sys.stderr.isatty():
                print(f"\r{len(verdicts)} of {len(numbers)} cases, {bad} failures, {time.monotonic() - began:.0f} s",
                      end="", flush=True, file=sys.stderr)
            time.sleep(0.5)
        for worker in workers:
            verdicts += worker.look()
    print(file=sys.stderr)
    show(verdicts, seed, time.monotonic() - began)
    return sum(verdict["outcome"] == "failed" for verdict in verdicts)


def show(verdicts: list[dict], seed: int, seconds: float) -> None:
    print(f"{'kind':<10}{'cases':>8}{'accepted':>10}{'refused':>9}{'failures':>10}{'ms per case':>13}{'slowest s':>11}")
    for kind in [*sorted({verdict["kind"] for verdict in verdicts}), "all"]:
        some = [verdict for verdict in verdicts if kind in (verdict["kind"], "all")]
        counts = collections.Counter(verdict["outcome"] for verdict in some)
        times = [verdict["seconds"] for verdict in some]
        print(f"{kind:<10}{len(some):>8}{counts['accepted']:>10}{counts['refused']:>9}{counts['failed']:>10}"
              f"{1000 * sum(times) / len(some):>13.0f}{max(times):>11.1f}")
    failed = [verdict["why"] for verdict in verdicts if verdict["outcome"] == "failed"]
    classes = collections.Counter(why.split(": ")[0][:90] for why in failed)
    for why, count in classes.most_common():
        print(f"{count:>6} x {why}")
    print(f"seed {seed}, {seconds:.0f} s; failures with their cases: build/fuzz/failures-{seed}.jsonl")


def play_one(seed: int, number: int) -> int:
    """One case in this process, with its text."""
    from fuzz.cases import World, prepare_shared

    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "shared").mkdir()
        prepare_shared(Path(name) / "shared")
        verdict = World(Path(name) / "shared", Path(name) / "own").play(seed, number)
    print(f"{verdict.case}\n\n{verdict.kind} case {number} of seed {seed}: {verdict.outcome} in "
          f"{verdict.seconds:.1f} s: {verdict.why}")
    return verdict.outcome == "failed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="study, file, folder or command")
    parser.add_argument("--case", type=int, help="play this one again")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--batch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--shared", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    prepare()
    if asked.batch:
        play_batch(asked.shared, asked.batch / "own", asked.seed, json.loads((asked.batch / "numbers").read_text()),
                   asked.batch / "log.jsonl")
        return 0
    if asked.case is not None:
        return play_one(asked.seed, asked.case)
    numbers: list[int] = []
    number = 0
    while len(numbers) < asked.cases:
        if asked.only in (None, kind_of(number)):
            numbers.append(number)
        number += 1
    return int(fuzz(asked.seed, numbers, asked.processes) > 0)


if __name__ == "__main__":
    sys.exit(main())
