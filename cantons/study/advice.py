"""What a user should know about data before training on them, and about a run that took long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cantons.data import Federation
from cantons.errors import InputError, amount
from cantons.protocol import Problem

LARGE = 10.0  # columns beyond this, by the root of their mean square, want smaller steps than the usual ones
ROWS = 10_000  # as many are looked at
COMPILED = 2  # evaluations of a sitting that are the first of their program
LONG, MOSTLY = 20.0, 4.0  # seconds of evaluations, and as many times the seconds of rounds, that are worth a word


def about_inputs(problem: Problem, data: Federation) -> list[str]:
    """A sentence, if numbers that were not scaled are so large that steps of a usual size overshoot."""
    inputs = data.train.inputs
    if not isinstance(inputs, np.ndarray) or not inputs.size or not _are_quantities(problem, inputs):
        return []
    some = np.asarray(inputs[::1 + len(inputs) // ROWS], np.float64)
    most = np.maximum(np.abs(some).max(axis=0), 1.0)  # its square may be too large to be a number
    sizes = (most * np.sqrt(np.square(some / most).mean(axis=0))).ravel()
    if not (sizes > LARGE).any():
        return []
    columns = None if data.encoding is None else data.encoding.columns
    place = int(sizes.argmax())
    named = f"the column {columns[place].name!r} of {data.name} has" if columns and len(columns) == len(sizes) else (
        f"inputs of {data.name} have")
    cure = 'scale = "standard" in [data] (in Python: scale="standard")' if "scale" in (data.spec or {}) else (
        "inputs that are scaled")
    return [f"{named} numbers around {sizes[place]:.3g}, which take much smaller steps than numbers around 1; {cure} "
            "may help."]


def _are_quantities(problem: Problem, inputs: np.ndarray) -> bool:
    """Whether it makes sense to scale them; whole numbers may be tokens, and none is below 0."""
    if inputs.dtype.kind == "f":
        return True
    if inputs.dtype.kind not in "iu" or problem.spec is None:
        return False
    try:
        problem.check_inputs(np.full((1, *inputs.shape[1:]), -1))
    except InputError:
        return False
    return True


def about_evaluations(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence, if a run did little but evaluate, from what was measured in one sitting.

    The first two evaluations do not count, since they are also compiled: before round 0 all clients are scored with the
    common model, which is another program.
    """
    later = [row["evaluation_seconds"] for row in history[COMPILED:] if "evaluation_seconds" in row]
    if not later:
        return []
    evaluating, training = sum(later), history[-1]["seconds"] - history[COMPILED - 1]["seconds"]
    if evaluating < LONG or evaluating < MOSTLY * training:
        return []
    return [f"{amount(len(later), 'evaluation')} after the first two took {evaluating:.0f} s, and the rounds meanwhile "
            f"{training:.0f} s; evaluate less often (evaluate_every) or score a sample of the clients "
            "(evaluate_clients)."]
