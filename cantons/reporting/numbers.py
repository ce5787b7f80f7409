"""Scores as people read them: about as many digits whatever their size."""

from __future__ import annotations


def score(value: float, beside: float | None = None) -> str:
    """With the decimals that suit `beside`, a number it stands next to, if one is given.

    >>> score(0.9716), score(31.42), score(4349.6), score(2.5e9)
    ('0.972', '31.42', '4,350', '2.5e+09')
    >>> score(147.7, beside=4349.6)
    '148'
    """
    size = abs(value if beside is None else beside)
    if size >= 1e6:
        return f"{value:.3g}"
    return f"{value:,.{3 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0}f}"
