"""Client by client: who gains and who loses when one model takes the place of another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from cantons.display import score

SAME = 1e-6  # scores closer than this are equal: they are written down in single precision


def count_better(before: ArrayLike, after: ArrayLike, larger_is_better: bool) -> int:
    """How many clients gain; those without a score do not count."""
    return int(np.sum(_gains(before, after, larger_is_better) > 0))


def verdict(before: ArrayLike, after: ArrayLike, names: Sequence[str], larger_is_better: bool) -> str:
    """How many clients gain and lose, and who does most; clients without a score do not count.

    >>> verdict([0.5, 0.5, 0.75], [0.75, 0.5, 0.5], ["ann", "bob", "eve"], larger_is_better=True)
    '1 better, 1 equal, 1 worse. Most gained: ann, by 0.250. Most lost: eve, by 0.250.'
    """
    gains = _gains(before, after, larger_is_better)
    better, equal, worse = (int(np.sum(test)) for test in (gains > 0, gains == 0, gains < 0))
    words = [f"{better} better, {equal} equal, {worse} worse."]
    for title, count, sign in (("Most gained", better, 1), ("Most lost", worse, -1)):
        if count:
            most = int(np.nanargmax(sign * gains))
            name = f"client {names[most]}" if names[most].isdigit() else names[most]
            words.append(f"{title}: {name}, by {score(abs(gains[most]))}.")
    return " ".join(words)


def _gains(before: ArrayLike, after: ArrayLike, larger_is_better: bool) -> np.ndarray:
    change = np.asarray(after) - np.asarray(before)
    return np.where(np.abs(change) < SAME, 0, change if larger_is_better else -change)
