"""Kill a run at random moments, resume it each time, and compare the end with a run nobody disturbed.

    python tests/study/kill_and_resume.py --kills 20
"""

from __future__ import annotations

import argparse
import hashlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

STUDY = """
rounds = 3000
cohort = 10
evaluate_every = 250
checkpoint_every = 100

[data]
name = "digits"
clients = 30

[problem]
name = "classification"
model = { name = "mlp", hidden = [16] }
split = "output"

[algorithm]
name = "scaffold"
batch_size = 8
"""


def command(study: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "cantons.cli.main", "run", str(study), "--out", str(out), "--resume"]


def final_bytes(out: Path) -> str:
    """A digest of everything a finished run knows: its state, and every evaluation but the clock's readings."""
    import json

    import jax

    from cantons.errors import Notice
    from cantons.study.load import load

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Notice)  # the run's process may have had fewer devices
        state = load(out).state
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(state):
        digest.update(leaf.tobytes())
    timed = ("seconds", "seconds_per_round", "updates_per_second", "evaluation_seconds")
    for line in (out / "metrics.jsonl").read_text().splitlines():
        row = {key: value for key, value in json.loads(line).items() if key not in timed}
        digest.update(json.dumps(row, sort_keys=True).encode())
    return digest.hexdigest()


def kill_and_resume(folder: Path, kills: int, seed: int) -> tuple[str, str, list[float]]:
    """Digests of the undisturbed and of the disturbed run, and when the kills came."""
    study = folder / "study.toml"
    study.write_text(STUDY)
    began = time.monotonic()
    subprocess.run(command(study, folder / "calm"), check=True, capture_output=True)
    whole = time.monotonic() - began
    dice, moments = random.Random(seed), []
    while len(moments) < kills:
        # Some kills come while Python starts, most while the rounds run, some while the last files are written.
        moment = dice.uniform(0.1, 1.1) * whole
        process = subprocess.Popen(command(study, folder / "disturbed"), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:  # it was done before the signal: start it over
            subprocess.run(["rm", "-rf", str(folder / "disturbed")], check=True)
            continue
        moments.append(moment)
    subprocess.run(command(study, folder / "disturbed"), check=True, capture_output=True)
    return final_bytes(folder / "calm"), final_bytes(folder / "disturbed"), moments


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        calm, disturbed, moments = kill_and_resume(Path(name), options.kills, options.seed)
    print(f"killed {len(moments)} times, after {', '.join(f'{moment:.1f}' for moment in moments)} s")
    print("bit-identical" if calm == disturbed else "DIFFERENT")
    sys.exit(calm != disturbed)
