"""Names and counts as sentences have them."""

from __future__ import annotations

from collections.abc import Sequence


def listed(names: Sequence[str], most: int = 6) -> str:
    """Names as a sentence has them; those with a comma of their own are kept apart by semicolons.

    >>> listed(["ann", "bob", "eve"]), listed(["ann", "bob", "eve"], most=2)
    ('ann, bob and eve', 'ann, bob and 1 more')
    >>> listed(["fedavg", "fedprox, mu=0.1", "scaffold"])
    'fedavg; fedprox, mu=0.1; and scaffold'
    """
    rest = len(names) - most
    *most_names, last = [*names[:most], f"{rest} more"] if rest > 0 else names
    if any("," in name for name in names):
        return "; ".join([*most_names, f"and {last}" if most_names else last])
    return f"{', '.join(most_names)} and {last}" if most_names else last
