"""Owns: running rounds and steps, and where. May import: protocol, memory, optional, phases, ranges, errors."""

from collections.abc import Callable

from cantons.engine.batched import Batched
from cantons.engine.devices import floats
from cantons.engine.evaluate import is_shared_model
from cantons.engine.init import keeps_private, seed_keys, starting_point, starting_shapes
from cantons.engine.local import Local
from cantons.engine.models import personal_models
from cantons.engine.plain import Plain
from cantons.engine.ray import Ray
from cantons.engine.round import Arrays
from cantons.engine.stepper import blank_snapshot, message_held, shapes_that_travel
from cantons.engine.varying import real_options
from cantons.protocol import Engine

# The engines a study can name.
ENGINES: dict[str, Callable[..., Engine]] = {engine.name: engine for engine in (Local, Plain, Ray)}

# Studies use these and no other names: the rest is the engines' own business.
__all__ = ["ENGINES", "Arrays", "Batched", "Local", "Plain", "Ray", "blank_snapshot", "floats", "is_shared_model",
           "keeps_private", "message_held", "personal_models", "real_options", "seed_keys", "shapes_that_travel",
           "starting_point", "starting_shapes"]
