"""How much a client computes, counted by hand.

Augenstein et al., "Mixed Federated Learning: Joint Decentralized and Centralized Learning", 2022, appendix C.3. Its B_i
is `batch_size`, its d `width` and its N `vocabulary`.
"""

from __future__ import annotations

from cantons.errors import at_least


def dual_encoder_flops(batch_size: int, width: int = 16, vocabulary: int | None = None) -> float:
    """Operations of a client in one local step of a dual encoder; with a `vocabulary`, those of spreadout too.

    The mean of the context is B d; the hidden layer B d^2, the similarities B^2 d and the loss B, forwards, and twice,
    twice and once as much backwards. Spreadout adds N^2 d / 2, and N d for its gradient. It is counted as the paper
    does, from the N x N matrix of cosines; the central loss here gets the same number from the d x d one in N d^2.

    >>> round(dual_encoder_flops(16) / 1e6, 3), round(dual_encoder_flops(16, vocabulary=3952) / 1e6, 2)
    (0.025, 125.03)
    """
    at_least("batch_size", batch_size, 1)
    at_least("width", width, 1)
    step = batch_size * width + 3 * batch_size * width**2 + 3 * batch_size**2 * width + 2 * batch_size
    if vocabulary is None:
        return float(step)
    at_least("vocabulary", vocabulary, 1)
    return step + vocabulary**2 * width / 2 + vocabulary * width
