"""How long does a FedAvg round take here, and how long with pfl-research, FedJAX and Flower?

    python benchmarks/peers.py --models linear mlp cnn --repeats 9

Each contender is a process in an environment of its own (benchmarks/.venvs, made on first use). They take turns:
a window of rounds each, one contender at a time, so that whatever else the machine is doing slows all alike.
The first window compiles and warms up, and is left out. What is reported is the median over windows, and the
ratio's over turns. The table has a line for a contender that cannot be installed or fails, and says why.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import bare
from rounds import spread

from cantons.study.folder import environment

HERE = Path(__file__).resolve().parent
OURS = "cantons"
PATIENCE = 300  # seconds for one window, the first one's compilation included


class Contender(NamedTuple):
    script: str
    requirements: tuple[str, ...]  # none: it runs where this does
    windows: dict[str, int]  # rounds to a window: about a second's worth
    variables: dict[str, str] = {}  # noqa: RUF012


PFL = ("torch==2.13.0", "pfl==0.6.0")
CONTENDERS = {
    OURS: Contender("cantons_rounds", (), {"linear": 500, "mlp": 40, "cnn": 1}),
    "pfl": Contender("pfl_rounds", PFL, {"linear": 4, "mlp": 4, "cnn": 1}),
    # PyTorch's threads wait for each other at every small step, which on a busy machine costs more than it saves.
    "pfl, 1 thread": Contender("pfl_rounds", PFL, {"linear": 4, "mlp": 4, "cnn": 1}, {"OMP_NUM_THREADS": "1"}),
    "fedjax": Contender("fedjax_rounds", ("fedjax==0.0.17", "jax==0.10.2"), {"linear": 20, "mlp": 8, "cnn": 1}),
    "flower": Contender("flower_rounds", ("torch==2.13.0", "flwr==1.41.0", "ray==2.60.0"),
                        {"linear": 3, "mlp": 2, "cnn": 1}),
}


class Failed(Exception):
    """A contender that does not answer; the message says why."""


def python_for(contender: Contender) -> Path:
    """The interpreter of its environment, which is made on first use."""
    if not contender.requirements:
        return Path(sys.executable)
    folder = HERE / ".venvs" / contender.script.removesuffix("_rounds")
    made, wanted = folder / "requirements.txt", "\n".join(contender.requirements) + "\n"
    python = folder / "bin" / "python"
    if not made.exists() or made.read_text() != wanted:
        print(f"installing {', '.join(contender.requirements)} ...", file=sys.stderr, flush=True)
        for command in ([sys.executable, "-m", "venv", "--clear", folder],
                        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                         *contender.requirements]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise Failed(f"cannot be installed: {last_line(done.stderr)}")
        made.write_text(wanted)
    return python


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it said nothing"])[-1].replace(f"{HERE.parent}/", "")[:200]


class Player:
    """A contender at work on one model."""

    def __init__(self, name: str, work: dict[str, Any]):
        contender = CONTENDERS[name]
        self.window = contender.windows[work["model"]]
        self.milliseconds: list[float] = []
        self.versions: dict[str, str] = {}
        self.complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [python_for(contender), HERE / "peers" / f"{contender.script}.py",
             json.dumps(work | {"window": self.window})],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.complaints, text=True, start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(HERE)} | contender.variables)

    def listen(self) -> float:
        """Milliseconds per round of the window being played."""
        assert self.process.stdout is not None
        timer = threading.Timer(PATIENCE, self.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        if not line:
            self.kill()
            self.complaints.seek(0)
            raise Failed(f"no answer: {last_line(self.complaints.read())}")
        answer = json.loads(line)
        self.versions = answer["versions"]
        return answer["ms"]

    def play(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.milliseconds.append(self.listen())

    def leave(self) -> None:
        self.process.communicate()  # closes its stdin, for which it waits after its last window

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def tournament(model: str, names: list[str], repeats: int) -> tuple[list[dict[str, Any]], list[float | None]]:
    """Let the contenders take turns at one model; also tell how busy others were, before each turn."""
    network = bare.NETWORKS[model]
    work = {"model": model, "clients": bare.CLIENTS, "examples": bare.EXAMPLES, "cohort": bare.COHORT,
            "batch": bare.BATCH, "step_size": bare.STEP_SIZE, "input_shape": network.input_shape,
            "classes": network.classes, "windows": repeats + 1}
    players: dict[str, Player] = {}
    reasons: dict[str, str] = {}
    foreign = []
    for turn in range(repeats + 1):
        if turn > 0:
            foreign.append(foreign_cores())
        for name in names:
            try:
                if turn == 0:
                    players[name] = Player(name, work)
                    players[name].listen()
                elif name not in reasons:
                    players[name].play()
            except (Failed, OSError) as error:
                reasons[name] = str(error)
    for name in players.keys() - reasons.keys():
        players[name].leave()
    rows = [{"model": model, "contender": name, "reason": reasons[name]} if name in reasons else
            {"model": model, "contender": name, "versions": players[name].versions, "window": players[name].window,
             "ms": players[name].milliseconds} for name in names]
    return with_ratios(rows), foreign


def with_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many times as long as ours, turn by turn."""
    ours = next((row["ms"] for row in rows if row["contender"] == OURS and "ms" in row), None)
    return [row | {"ratio": [theirs / own for theirs, own in zip(row["ms"], ours, strict=True)]}
            if ours and "ms" in row else row for row in rows]


def foreign_cores(seconds: float = 0.5) -> float | None:
    """How many cores other programs keep busy, while all contenders wait; known on Linux only."""

    def working() -> float:
        user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:8])
        return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")

    try:
        before = working()
        time.sleep(seconds)
        return round((working() - before) / seconds, 2)
    except OSError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=bare.NETWORKS, default=list(bare.NETWORKS))
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--repeats", type=int, default=7, help="windows of each contender")
    parser.add_argument("--machine", default=f"cpu{len(os.sched_getaffinity(0))}", help="names the file of results")
    parser.add_argument("--date", help="written to the results as it is")
    options = parser.parse_args()

    for name in options.contenders:  # before anything is timed
        with contextlib.suppress(Failed):
            python_for(CONTENDERS[name])
    load, foreign, rows = os.getloadavg(), {}, []
    print(f"{'model':8}{'contender':16}{'ms per round':>32}{'times ours':>28}")
    for model in options.models:
        found, foreign[model] = tournament(model, options.contenders, options.repeats)
        for row in found:
            print(f"{model:8}{row['contender']:16}" + (row["reason"] if "reason" in row else
                  f"{spread(row['ms']):>32}{spread(row['ratio']) if 'ratio' in row else '':>28}"), flush=True)
        print(f"{model:8}cores busy with other programs before each turn:", *foreign[model], flush=True)
        rows += found
    about = {"command": [Path(sys.executable).name, *sys.argv], "date": options.date, "environment": environment(),
             "load_at_start": load, "foreign_cores": foreign, "workload": {
                 "clients": bare.CLIENTS, "examples": bare.EXAMPLES, "cohort": bare.COHORT,
                 "batch": bare.BATCH, "epochs": 1, "step_size": bare.STEP_SIZE}, "rounds": rows}
    out = HERE / "results" / f"peers-{options.machine}.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
