"""Owns: methods. May import: regret, aggregate, mirror, problem, solve, map_batches, recipe, options, ranges, protocol,
errors.
"""

from cantons.algorithm.baselines import central, independent
from cantons.algorithm.ditto import ditto
from cantons.algorithm.fedalt import fedalt, fedsim
from cantons.algorithm.fedavg import fedavg, fedavg_finetune
from cantons.algorithm.fedomd import fedomd
from cantons.algorithm.fedopt import fedadam, fedavgm, fedopt, fedyogi
from cantons.algorithm.fedper import fedper
from cantons.algorithm.fedprox import fedprox
from cantons.algorithm.fedrep import fedrep
from cantons.algorithm.fedres_bandit import fedres_bandit
from cantons.algorithm.fedres_erm import fedres_erm, fictitious_play
from cantons.algorithm.fedres_online import fedres_online_sgd
from cantons.algorithm.fedres_rounds import fedres_avg, fedres_naive, fedres_sgd
from cantons.algorithm.fedsgd import fedsgd
from cantons.algorithm.ffgg import ffgg, local_ffgg
from cantons.algorithm.l2gd import l2gd
from cantons.algorithm.mixed import one_way_transfer, parallel_training, two_way_transfer
from cantons.algorithm.mixed_references import example_transfer, only_central, sequential
from cantons.algorithm.online_baselines import online_central, online_independent
from cantons.algorithm.parallel_centre import parallel_centre
from cantons.algorithm.parts.theorem_steps import ffgg_step_sizes
from cantons.algorithm.pfedme import pfedme
from cantons.algorithm.scaffold import scaffold

# An algorithm is known by its name as soon as it stands in one of the two: it learns in rounds, or from a stream.
ROUNDS = {build.__name__: build for build in (
    central, ditto, example_transfer, fedadam, fedalt, fedavg, fedavg_finetune, fedavgm, fedopt, fedper, fedprox,
    fedrep, fedres_avg, fedres_naive, fedres_sgd, fedsgd, fedsim, fedyogi, ffgg, independent, l2gd, local_ffgg,
    one_way_transfer, only_central, parallel_centre, parallel_training, pfedme, scaffold, sequential,
    two_way_transfer)}
ONLINE = {build.__name__: build for build in (
    fedomd, fedres_bandit, fedres_erm, fedres_online_sgd, fictitious_play, online_central, online_independent)}
ALGORITHMS = dict(sorted((ROUNDS | ONLINE).items()))

__all__ = ["ALGORITHMS", "ONLINE", "ROUNDS", "ffgg_step_sizes", *ALGORITHMS]
