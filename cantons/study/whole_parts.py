"""Parts as study.json has them: what was given by a name or by some of its options is a table with all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from cantons.options import options_of
from cantons.protocol import Recipe
from cantons.ranges import Named, whole
from cantons.study.registry import REGISTRY

LOSS = Annotated[Any, Named("central loss", REGISTRY["central_loss"])]


def whole_recipe(recipe: Recipe) -> dict[str, Any]:
    """
    >>> from cantons.algorithm import ffgg
    >>> whole_recipe(ffgg(tuner={"name": "gd", "step_size": 0.5}))["tuner"]
    {'name': 'gd', 'steps': 10, 'step_size': 0.5}
    """
    hints = {} if recipe.again is None else {
        option.name: option.annotation for option in options_of(recipe.again).parameters}
    return {"name": recipe.name, **{
        name: whole_recipe(value) if isinstance(value, Recipe) else whole(hints.get(name, Any), value)
        for name, value in recipe.options.items()}}


def whole_problem(spec: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Of a problem that is not ours the options are written down as they were given."""
    if spec is None:
        return None
    build = REGISTRY["problem"].get(spec["name"])
    hints = {} if build is None else {option.name: option.annotation for option in options_of(build).parameters}
    found = {name: whole(hints.get(name, Any), value) for name, value in spec.items()}
    return found | {name: _whole_losses(spec[name]) for name in ("central_loss", "group_losses") if name in spec}


def _whole_losses(losses: Any) -> Any:
    """Of one loss, or of several by name."""
    if isinstance(losses, Mapping) and "name" not in losses:
        return {name: whole(LOSS, loss) for name, loss in losses.items()}
    return whole(LOSS, losses)
