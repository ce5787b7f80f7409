"""What measures of regret have in common: numbers, or a sentence that says why there are none."""

from __future__ import annotations

from collections.abc import Callable

from cantons.protocol import Online, Progress

Measure = Callable[[Progress], dict[str, float] | str]  # the numbers so far, or why there are none

ABSTAINED = "a client abstained, because its loss or its upload was not a number, and it is not known on which examples"


def other_order(online: Online) -> str:
    return f"examples come in the order \"{online.order}\", and only in the order \"cycle\" is it known which were met"
