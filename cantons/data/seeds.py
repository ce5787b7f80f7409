"""One NumPy generator per purpose, so that no draw depends on what else was drawn."""

from __future__ import annotations

import zlib

import numpy as np

from cantons.errors import at_least


def generator(seed: int, *purpose: str) -> np.random.Generator:
    """The generator for `purpose` under `seed`; other seeds and other purposes draw unrelated numbers.

    >>> bool(generator(0, "test", "ann").integers(100) == generator(0, "test", "ann").integers(100))
    True
    """
    at_least("seed", seed, 0)
    return np.random.default_rng([seed, *(zlib.crc32(word.encode()) for word in purpose)])
