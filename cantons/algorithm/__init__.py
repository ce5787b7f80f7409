"""Owns: one file per method, pure functions over explicit state. May import: aggregate, recipe, protocol, errors."""

from cantons.algorithm.fedavg import fedavg, fedavg_finetune
from cantons.algorithm.fedopt import fedadam, fedavgm, fedopt, fedyogi
from cantons.algorithm.fedprox import fedprox
from cantons.algorithm.fedsgd import fedsgd
from cantons.algorithm.l2gd import l2gd
from cantons.algorithm.references import central, independent
from cantons.algorithm.scaffold import scaffold

ALGORITHMS = {build.__name__: build for build in (
    central, fedadam, fedavg, fedavg_finetune, fedavgm, fedopt, fedprox, fedsgd, fedyogi, independent, l2gd,
    scaffold)}

__all__ = ["ALGORITHMS", *ALGORITHMS]
