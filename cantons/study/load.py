"""Come back to a finished (or interrupted) run: the model, from its folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from cantons.data import with_validation
from cantons.engine import blank_snapshot
from cantons.errors import InputError
from cantons.problem import problem_from_spec
from cantons.protocol import Problem, Recipe
from cantons.study.checkpoint import Checkpoints
from cantons.study.reading import LOADED, read_study, rebuilding
from cantons.study.registry import make, make_algorithm, make_problem, make_recipe
from cantons.study.resolve import choose_rule
from cantons.study.result import Trained


@rebuilding
def load(folder: str | Path, *, problem: Problem | None = None, algorithm: Recipe | None = None,
         data: Any = None) -> Trained:
    """The trained federation in `folder`, to predict with.

    Parts that were written in Python and have no name must be given again. Data is only needed to predict
    as one of the clients, and is made again from the study where it can be.
    """
    path = Path(folder)
    study = read_study(path, LOADED)
    if "models" in study:
        raise InputError(f"{path} is a run whose clients brought models of their own, which only you can make again; "
                         "run_with_models(..., out=..., resume=True) with models made alike gives it back.")
    if data is None:
        data = _data(study)
    problem = problem or _problem(study, data, path)
    algorithm = algorithm or _algorithm(study, path)
    population = study["data"]["population"]
    rule = make_recipe("aggregate", study["aggregate"]) if study.get("aggregate") else None
    with jax.enable_x64(study["precision"] == "float64"):
        built = algorithm.build(problem, population)
        if rule is not None:
            built = choose_rule(algorithm.name, built, rule)
        clock = make_recipe("clock", study["clock"]).build(population, None if data is None else data.arrivals)
        try:
            template = blank_snapshot(problem, built, clock, population, study["seed"],
                                      None if data is None else data.train, None if data is None else data.central)
        except InputError as error:
            raise InputError(f"cannot read {path} back: {error}") from error
        found = Checkpoints(path / "checkpoints").newest(template)
        if found is None or not found[1]:
            raise InputError(f"{path} holds no sound checkpoint yet; let the run go on (--resume) or finish.")
    return Trained(problem, built, found[0], data, study["seed"], study["precision"])


def _data(study: dict[str, Any]) -> Any:
    """None if the data has no maker, or its file is gone: then only the shared model can predict."""
    if study["data"]["made_by"] is None:
        return None
    try:
        data = make("data", study["data"]["made_by"])
    except InputError:
        return None
    return data if study["validation"] is None else with_validation(data, study["validation"])


def _problem(study: dict[str, Any], data: Any, path: Path) -> Problem:
    spec = study["problem"]
    if spec is None:
        raise InputError(f"the problem of {path} was written in Python and has no name; "
                         "give it: load(folder, problem=...).")
    if "input_shape" in spec:  # otherwise a part of it is the user's own, and asks the data for its shapes
        return problem_from_spec(spec)
    if data is None:
        raise InputError(f"the problem of {path} is made from its data, which is not there; "
                         "give it: load(folder, data=...).")
    return make_problem(spec, data)


def _algorithm(study: dict[str, Any], path: Path) -> Recipe:
    try:
        return make_algorithm(study["algorithm"])
    except InputError as error:
        raise InputError(f"cannot rebuild the algorithm of {path} ({error}); "
                         "give it: load(folder, algorithm=...).") from error
