"""Runs, resumes, sweeps, reports and predictions in random order, for a long time, in two processes at once.

    python tests/fuzz/soak.py --minutes 20

Each process goes on and on, in folders of its own and in one that both use. After the first quarter of the time (at
most five minutes), resident memory may grow by less than 5%, open files and threads not at all.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
GROWTH = 0.05
PAGE = os.sysconf("SC_PAGE_SIZE")


def measure() -> dict[str, float]:
    """What this process holds now."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
    return {"MiB": resident / 2**20, "files": len(os.listdir("/proc/self/fd")),
            "threads": len(os.listdir("/proc/self/task"))}


def play(place: Path, minutes: float, seed: int) -> None:
    """Work until the time is over; after each piece of work, one line of measures."""
    from click.testing import CliRunner
    from fuzz.folders import make_bases

    from cantons.cli.main import cantons

    own = place / str(seed)
    own.mkdir()
    make_bases(own)
    common = place / "common"
    common.mkdir(exist_ok=True)
    dice, ends, count = random.Random(seed), time.monotonic() + 60 * minutes, 0
    with (place / f"{seed}.jsonl").open("a") as lines:
        while time.monotonic() < ends:
            study, step, count = dice.choice(["rounds", "csv", "online"]), dice.choice([0.05, 0.1, 0.2]), count + 1
            out = dice.choice([own, common]) / f"out{dice.randrange(3)}"
            words = {
                "run": ["run", f"{own}/{study}.toml", "--out", str(out), "--set", f"algorithm.step_size={step}"],
                "resume": ["run", f"{own}/{study}.toml", "--out", f"{own}/{study}", "--resume", "--rounds",
                           str(10 + count)],
                "sweep": ["sweep", f"{own}/{study}.toml", "--grid", f"algorithm.step_size={step},{step / 3}", "--seeds",
                          "1",
                          "--rounds", "2", "--out", str(out / "sweep")],
                "compare": ["compare", f"{own}/{study}.toml", "--seeds", "2", "--rounds", "2", "--out",
                            str(out / "compare")],
                "report": ["report", f"{own}/{study}", "--out", f"{own}/{count}.html"],
                "predict": ["predict", f"{own}/x.npy", "--run", f"{own}/rounds", "--client", "0"],
                "export": ["export", "--run", f"{own}/{study}", "--out", f"{own}/export{count}"],
                "describe": ["describe", dice.choice(["fedavg", "digits", "scaffold"])],
                "broken": ["run", f"{own}/{study}.toml", "--out", f"{own}/none", "--set", "algorithm.nope=1"],
            }
            what = dice.choice(sorted(words))
            done = CliRunner().invoke(cantons, words[what])
            if done.exception is not None and not isinstance(done.exception, SystemExit):
                raise done.exception
            # What is common stays: the other process may be writing it.
            gone = [out] if out.parent == own and dice.random() < 0.7 else []
            for path in (own / f"{count}.html", own / f"export{count}", *gone):
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
            now = time.monotonic() - ends + 60 * minutes
            lines.write(json.dumps({"second": now, "what": what, "code": done.exit_code, **measure()}) + "\n")
            lines.flush()


def judge(samples: list[dict], seconds: float) -> tuple[dict[str, tuple[float, float]], list[str]]:
    """(at the beginning, at the end) of each measure, after the first quarter; and what has grown."""
    settled = min(seconds / 4, 300)
    window = (seconds - settled) / 5
    early = [each for each in samples if settled <= each["second"] < settled + window]
    late = [each for each in samples if each["second"] >= seconds - window]
    memory = tuple(statistics.median(each["MiB"] for each in part) for part in (early, late))
    # A thread that comes and goes with the work is no growth: the most that were seen at once must not become more.
    found = {"MiB": memory, **{name: tuple(float(max(each[name] for each in part)) for part in (early, late))
                               for name in ("files", "threads")}}
    grown = [name for name, (before, after) in found.items() if after > before * (1 + GROWTH * (name == "MiB"))]
    return found, grown


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.place:
        play(asked.place, asked.minutes, asked.seed)
        return 0
    from fuzz.run import prepare

    prepare()
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        seeds = [asked.seed * 100 + index for index in range(asked.processes)]
        workers = [subprocess.Popen([sys.executable, __file__, "--place", name, "--minutes", str(asked.minutes),
                                     "--seed",
                                     str(seed)], env={**os.environ, "PYTHONWARNINGS": "ignore"}) for seed in seeds]
        codes = [worker.wait() for worker in workers]
        for seed, code in zip(seeds, codes, strict=True):
            samples = [json.loads(line) for line in (Path(name) / f"{seed}.jsonl").read_text().splitlines()]
            print(f"process {seed}: {len(samples)} pieces of work, exit code {code}")
            found, grown = judge(samples, 60 * asked.minutes) if code == 0 else ({}, [])
            wrong += bool(code or grown)
            for measure_name, (before, after) in found.items():
                print(f"  {measure_name:<8}{before:>9.0f} ->{after:>9.0f}  {100 * (after / before - 1):+.1f}%"
                      f"{'  GROWN' if measure_name in grown else ''}")
        if wrong:
            show(samples)
    return int(wrong > 0)


def show(samples: list[dict]) -> None:
    """Twenty of the last process' samples."""
    print(f"{'second':>8} {'work':<9}{'MiB':>8}{'files':>7}{'threads':>9}")
    for each in samples[::max(1, len(samples) // 20)]:
        print(f"{each['second']:>8.0f} {each['what']:<9}{each['MiB']:>8.0f}{each['files']:>7}{each['threads']:>9}")


if __name__ == "__main__":
    sys.exit(main())
