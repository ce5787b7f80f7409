"""FedRep: clients fit their heads to the shared representation, then take one pass over their examples for it.

Collins, Hassani, Mokhtari and Shakkottai, "Exploiting Shared Representations for Personalized Federated Learning", ICML
2021, Algorithm 1. The representation phi is the shared part and a client's head h_i its private one, which it keeps.
It is FedAlt with many epochs for the head and one for the representation.
"""

from __future__ import annotations

from cantons.algorithm.fedalt import Personal, alternate, build
from cantons.algorithm.ffgg import Serving
from cantons.algorithm.parts.training import Work
from cantons.options import Flat
from cantons.protocol import Algorithm, Needs, Problem
from cantons.ranges import Count
from cantons.recipe import algorithm


@algorithm
def fedrep(problem: Problem, population: int, *, head_epochs: Count = 10, epochs: Count = 1, personal: Flat[Personal],
           serving: Flat[Serving]) -> Algorithm:
    """Many passes over a client's examples for its head, then one for the representation that all share.

    head_epochs: tau_h, passes of the private part while the shared one stands still.
    epochs: passes of the shared part, after them.
    """
    works = (Work(passes, batch_size=personal.batch_size) for passes in (head_epochs, epochs))
    return build(problem, personal, serving, alternate(problem, personal, *works))._replace(needs=Needs(private=True))
