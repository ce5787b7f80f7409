"""What travels, by name and by size."""

from __future__ import annotations

import jax
import numpy as np

from cantons.protocol import PyTree


def nbytes(tree: PyTree) -> int:
    """Bytes of all arrays (or shapes) in a message.

    >>> nbytes({"weight": np.zeros((10, 2), np.float32), "bias": np.zeros(2, np.float32)})
    88
    """
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def leaves(tree: PyTree) -> list[tuple[str, tuple[int, ...], str]]:
    """(path, shape, dtype) of every leaf: exactly what is sent."""
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf.shape, str(leaf.dtype))
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]
