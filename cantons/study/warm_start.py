"""Begin where another run ended: with its shared part, and with every client's private part.

Parameters are found by their paths, so the two problems may split one model differently: a part that was shared may
become private, and the other way round. Parameters that only the new problem has begin as it begins them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from cantons.data import Federation
from cantons.engine import keeps_private, seed_keys, starting_point
from cantons.errors import InputError
from cantons.problem.split import paths
from cantons.protocol import Parts, Problem, PyTree, Start
from cantons.study.load import load
from cantons.study.result import Result, Trained

Initial = Start | tuple[PyTree, PyTree] | Result | Trained | str | Path
Pair = tuple[PyTree, PyTree]
SAID = 5  # names that a notice lists


def start_from(initial: Initial, run: Parts, data: Federation, notice: Callable[[str], None]) -> Start:
    """Where a run begins; `notice` is told what could not be taken from the run before."""
    if isinstance(initial, str | Path):
        initial = _loaded(Path(initial), data)
    if isinstance(initial, Result):
        initial = initial.model
    if isinstance(initial, Trained):
        return _continued(initial, run, data, notice)
    if not isinstance(initial, tuple) or len(initial) not in (2, 3, 4):
        raise InputError(f"initial is a {type(initial).__name__}; give a result, a model that load gave, a run folder, "
                         "or a pair (shared, private).")
    return Start(*initial)


def check_follows(before: Problem, after: Problem) -> None:
    """Refuse a problem whose parameters are not those of the one before; nothing is computed."""
    _moves(*(jax.eval_shape(problem.init, jax.eval_shape(lambda: jax.random.key(0))) for problem in (before, after)))


def _loaded(folder: Path, data: Federation) -> Trained:
    """The run in a folder; if its data cannot be made again, those of the new run may be the same."""
    trained = load(folder)
    return load(folder, data=data) if trained.data is None else trained


def _continued(trained: Trained, run: Parts, data: Federation, notice: Callable[[str], None]) -> Start:
    fresh = jax.device_get(starting_point(run.problem, seed_keys(run.seed)[0])[:2])
    before = trained.parts()
    moves = _moves(before, fresh)
    new = [path for side in moves for path, source in side.items() if source is None]
    if new:
        notice(f"these parameters begin anew, because the run before has none: {_listed(new)}.")
    shared, private = _moved(moves, fresh, before)
    learned = any(source is not None and source[0] for source in moves[1].values())  # by each client for itself
    if not learned or trained.is_one_model() or not keeps_private(run.algorithm, fresh):
        return Start(shared, private)
    rows = trained.of_clients(lambda *model: _moved(moves, fresh, model)[1])
    privates, own = _by_name(rows, private, trained.data.clients.names, data.clients.names, notice)
    return Start(shared, private, privates, own)


def _moves(before: Pair, after: Pair) -> list[dict[str, tuple[int, str] | None]]:
    """For the shared and the private part after: where each parameter stood before, as (part, path); None: nowhere."""
    old, new = ([dict(zip(paths(part), map(np.shape, jax.tree.leaves(part)), strict=True)) for part in parts]
                for parts in (before, after))
    where: list[dict[str, tuple[int, str] | None]]
    if [set(part) for part in old] == [set(part) for part in new]:
        where = [{path: (side, path) for path in part} for side, part in enumerate(old)]
    else:
        twice = old[0].keys() & old[1].keys()
        if twice:
            raise InputError(f"the run before has a shared and a private parameter {min(twice)}, so it cannot be split "
                             "anew; keep the parts of its problem.")
        home = {path: (side, path) for side, part in enumerate(old) for path in part}
        where = [{path: home.get(path) for path in part} for part in new]
        lost = home.keys() - {path for part in new for path in part}
        if lost:
            raise InputError(f"the run before has a parameter {min(lost)} of shape {_shape(old, home[min(lost)])}, and "
                             "this problem has none of that name; begin with a run of the same model.")
    for side, part in enumerate(where):
        for path, source in part.items():
            if source is not None and _shape(old, source) != new[side][path]:
                raise InputError(f"the run before has the parameter {path} of shape {_shape(old, source)}, and this "
                                 f"problem has it of shape {new[side][path]}; begin with a run of the same model.")
    return where


def _shape(parts: Sequence[dict[str, tuple[int, ...]]], place: tuple[int, str]) -> tuple[int, ...]:
    return parts[place[0]][place[1]]


def _moved(moves: Sequence[dict[str, tuple[int, str] | None]], fresh: Pair, model: Pair) -> tuple[PyTree, PyTree]:
    """The two parts of a model as the new problem has them."""
    old = [dict(zip(paths(part), jax.tree.leaves(part), strict=True)) for part in model]

    def moved(side: int) -> PyTree:
        sources = zip(moves[side].values(), jax.tree.leaves(fresh[side]), strict=True)
        leaves = [leaf if source is None else old[source[0]][source[1]] for source, leaf in sources]
        return jax.tree.unflatten(jax.tree.structure(fresh[side]), leaves)

    return moved(0), moved(1)


def _by_name(rows: PyTree, private: PyTree, before: Sequence[str], after: Sequence[str],
             notice: Callable[[str], None]) -> tuple[PyTree, np.ndarray]:
    """The rows of the clients that both runs have, in the order of the new one, and who they are.

    The others have the common private part.
    """
    places = {name: place for place, name in enumerate(before)}
    strangers = [name for name in after if name not in places]
    if strangers:
        notice(f"{len(strangers)} of the {len(after)} clients were not in the run before, and begin with the private "
               f"part that is common to all: {_listed(strangers)}.")
    order = np.array([places.get(name, len(before)) for name in after])

    def arranged(leaf: Any, common: Any) -> np.ndarray:
        return np.concatenate([leaf, np.asarray(common, leaf.dtype)[None]])[order]

    return jax.tree.map(arranged, rows, jax.device_get(private)), order < len(before)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - SAID
    return ", ".join(names[:SAID]) + (f" and {more} more" if more > 0 else "")
