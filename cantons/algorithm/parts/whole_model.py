"""Methods that personalise a whole model, where a part of it is private before they begin."""

from __future__ import annotations

import jax

from cantons.protocol import Parts, PyTree


def advise_whole_model(parts: Parts, start: tuple[PyTree, PyTree]) -> list[str]:
    """Tell that the method is not quite that of its paper; the shared model has a part that nobody trains."""
    if not jax.tree.leaves(start[1]):
        return []
    return [f"{parts.recipe.name} personalises whole models, and this problem has a private part: it is never shared, "
            "and the common model has it untrained; without a split (split = \"none\") it is as published."]
