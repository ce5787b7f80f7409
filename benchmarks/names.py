"""Names that are not the same in all source trees: what compares two trees takes whichever there is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import cantons as ct

RENAMED = {"moving": "drifting_targets", "blended": "synthetic_mixture"}  # makers of data, before and after


def named(library: Any, *names: str) -> Any:
    """The first of these that the library has."""
    return getattr(library, next((name for name in names if hasattr(library, name)), names[-1]))


def max_delay(steps: int) -> dict[str, int]:
    """The option of `online` that makes room for delays."""
    return {"max_delay" if "max_delay" in inspect.signature(ct.online).parameters else "longest": steps}


def rollouts() -> Callable[..., Any]:
    """The function that runs one study on many federations."""
    if hasattr(ct, "rollouts"):
        return ct.rollouts
    from cantons.study.rollouts import rollouts as found

    return found


def known(study: str) -> str:
    """A study file, its data named as this tree names it."""
    for old, new in RENAMED.items():
        if not hasattr(ct, old):
            study = study.replace(f'name = "{old}"', f'name = "{new}"')
    return study
