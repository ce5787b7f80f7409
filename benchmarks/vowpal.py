"""Does AdaGrad here predict what Vowpal Wabbit predicts with --adaptive, example by example?

    python benchmarks/vowpal.py

One learner meets a stream of labels -1 and 1; both sides predict each example before they learn from it. Vowpal Wabbit
is a process in an environment of its own (benchmarks/.venvs, made on first use); here it is one client of the online
clock, whose problem is that of the papers' experiments: the squared loss of a prediction clipped to [-1, 1], a bias.

`--adaptive` alone has a learning rate of 10, and on most streams it is unstable: rounding errors grow from step to step
until two programs that differ in the last bit differ in the first. How much of a difference is rounding is told by our
own run in float64 beside that in float32.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from peers import HERE, Contender, python_for

import cantons as ct
from cantons.study.folder import environment
from cantons.study.resolve import resolve

VERSION = "9.11.9"
RATES = (0.1, 0.5, 10.0)  # 10 is what --adaptive alone takes
CLOSE = 1e-5


def gaussian(steps: int = 500, width: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Labels of a linear model. Features are multiples of 1/64: text has all their digits."""
    random = np.random.default_rng(0)
    inputs = np.round(64 * random.normal(size=(steps, width))) / 64
    return inputs, np.where(inputs @ random.normal(size=width) + 0.3 > 0, 1.0, -1.0)


def digits(steps: int = 1797) -> tuple[np.ndarray, np.ndarray]:
    """Even digits against odd ones: 64 pixels, multiples of 1/16."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return images[:steps] / 16, np.where(labels[:steps] % 2, -1.0, 1.0)


STREAMS = {"gaussian": gaussian, "digits": digits}


def both_labels_first(inputs: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vowpal Wabbit clips to the labels seen so far: from the second example on these are -1 and 1."""
    other = int(np.argmax(labels != labels[0]))
    order = [0, other, *(row for row in range(1, len(labels)) if row != other)]
    return inputs[order].astype(np.float32), labels[order].astype(np.float32)


def as_text(inputs: np.ndarray, labels: np.ndarray) -> list[str]:
    return [f"{int(label)} | " + " ".join(f"f{column}:{float(value)!r}" for column, value in enumerate(row) if value)
            for row, label in zip(inputs, labels, strict=True)]


def ours(inputs: np.ndarray, labels: np.ndarray, recipe: Any, precision: str = "float32") -> np.ndarray:
    """The prediction at every step, told by the engine as one more score, of a single client."""
    data = ct.from_clients({"one": (inputs, labels)}, test=0)
    problem = ct.residual(data, shared_features="none", private_features="all", labels="sign", clip=1.0)

    def score(shared, private, batch):
        said = jnp.clip(problem.predict(shared, private, batch.inputs), -1, 1)
        return {**problem.score(shared, private, batch), "prediction": said}

    told, engine, found = problem._replace(score=score), ct.Local(), []
    with jax.enable_x64(precision == "float64"):
        run = resolve(told, data, recipe, rounds=len(labels), clock=ct.online(), precision=precision, engine=engine)
        session = engine.start([run.parts])
        state = session.begin()
        for step in range(len(labels)):
            state = session.advance(state, step + 1)
            (here,) = session.whole(state)
            in_flight = here.state.in_flight
            found.append(float(in_flight.scores["prediction"][0]))
            cleared = in_flight._replace(scores=jax.tree.map(np.zeros_like, in_flight.scores))  # sums lose digits
            state = session.restore([here._replace(state=here.state._replace(in_flight=cleared))])
    return np.array(found)


def theirs(streams: dict[str, tuple[np.ndarray, np.ndarray]], options: list[str], python: Path) -> dict[str, Any]:
    work = {"streams": {name: as_text(*stream) for name, stream in streams.items()}, "options": options}
    done = subprocess.run([python, HERE / "peers" / "vowpal_stream.py"], input=json.dumps(work), capture_output=True,
                          text=True, check=True)
    return json.loads(done.stdout)


def apart(one: np.ndarray, other: np.ndarray) -> dict[str, Any]:
    """How far two runs are from each other, and from which example on they are not close any more."""
    gap = np.abs(one - other)
    far = np.flatnonzero(gap > CLOSE)
    return {"largest": float(gap.max()), "close_for": int(far[0]) if len(far) else len(gap)}


def compared(streams: dict[str, tuple[np.ndarray, np.ndarray]], python: Path) -> tuple[list[dict[str, Any]], str]:
    options = {rate: "--adaptive" if rate == 10 else f"--adaptive -l {rate}" for rate in RATES}
    answer = theirs(streams, list(options.values()), python)
    rows = []
    for name, (inputs, labels) in streams.items():
        for rate in RATES:
            adaptive = {"step_size": rate, "method": "adagrad"}
            single, double = (ours(inputs, labels, ct.fedres_online_sgd(**adaptive), precision)
                              for precision in ("float32", "float64"))
            alone = ours(inputs, labels, ct.online_independent(**adaptive))
            wabbit = np.array(answer["predictions"][name][options[rate]])
            rows.append({
                "stream": name, "steps": len(labels), "options": options[rate],
                "vw_to_ours": apart(wabbit, single), "vw_to_ours_float64": apart(wabbit, double),
                "ours_to_ours_float64": apart(single, double), "independent_to_fedres": apart(alone, single),
                "loss": {"vw": float(((wabbit - labels) ** 2).mean()), "ours": float(((single - labels) ** 2).mean())},
                "accuracy": {"vw": float(((wabbit > 0) == (labels > 0)).mean()),
                             "ours": float(((single > 0) == (labels > 0)).mean())}})
    return rows, answer["version"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=list(STREAMS))
    parser.add_argument("--python", type=Path, help="one that has another vowpalwabbit; without it, "
                        f"{VERSION} is installed into an environment of its own")
    parser.add_argument("--out", default="vowpal.json", help="the file in benchmarks/results")
    options = parser.parse_args()
    python = options.python or python_for(Contender("vowpal", (f"vowpalwabbit=={VERSION}",), {}))
    streams = {name: both_labels_first(*STREAMS[name]()) for name in options.streams}
    rows, version = compared(streams, python)
    print(f"largest difference of predictions (examples until it exceeds {CLOSE:g}), vowpalwabbit {version}")
    print(f"{'stream':10}{'options':20}{'vw, ours':>22}{'vw, ours in float64':>22}{'ours, ours in float64':>24}")
    for row in rows:
        cells = [f"{row[key]['largest']:.1e} ({row[key]['close_for']})"
                 for key in ("vw_to_ours", "vw_to_ours_float64", "ours_to_ours_float64")]
        print(f"{row['stream']:10}{row['options']:20}{cells[0]:>22}{cells[1]:>22}{cells[2]:>24}")
    command = ["python", *(word if word != str(options.python) else options.python.name for word in sys.argv)]
    about = {"command": command, "vowpalwabbit": version, "environment": environment(), "rows": rows}
    (HERE / "results" / options.out).write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
