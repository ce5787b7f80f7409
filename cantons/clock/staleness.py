"""What a late answer is multiplied by.

Xie, Koyejo and Gupta, "Asynchronous Federated Optimization", 2020, section 5: constant, polynomial and hinge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import jax.numpy as jnp

from cantons.protocol import Array
from cantons.ranges import Named, NonNegative, Positive, checked

Factor = Callable[[Array], Array]  # of the delay


@checked
def constant() -> Factor | None:
    return None


@checked
def polynomial(a: NonNegative = 0.5) -> Factor:
    return lambda delay: (1.0 + delay) ** -a


@checked
def hinge(a: Positive = 10.0, b: NonNegative = 4.0) -> Factor:
    return lambda delay: 1.0 / (a * jnp.maximum(delay - b, 0.0) + 1.0)


STALENESS: dict[str, Callable[..., Factor | None]] = {"constant": constant, "hinge": hinge, "polynomial": polynomial}
Staleness = Annotated[str, Named("staleness", STALENESS)] | Annotated[dict, Named("staleness", STALENESS)]


def staleness_of(given: Any) -> Factor | None:
    """The factor that a name or a table describes; None where it is always 1."""
    options = {"name": given} if isinstance(given, str) else dict(given)
    return STALENESS[options.pop("name")](**options)
