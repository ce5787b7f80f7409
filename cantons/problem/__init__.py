"""Owns: losses, the split of a model. May import: models, data, recipe, ranges, protocol, errors, optional."""

from cantons.problem.bandit import bandit
from cantons.problem.central import CENTRAL_LOSSES, EQUAL, mixed, mixed_with, with_central_loss
from cantons.problem.dual_encoder import dual_encoder
from cantons.problem.groups import grouped, with_group_losses
from cantons.problem.logged_bandit import logged_bandit
from cantons.problem.losses import masked_mean
from cantons.problem.pytorch import from_torch, to_torch
from cantons.problem.residual import residual
from cantons.problem.shaped import Shapes
from cantons.problem.split import paths
from cantons.problem.supervised import MODELS, classification, linear, logistic, problem_from_spec, regression
from cantons.problem.target import target
from cantons.problem.wrap import from_equinox, from_flax, from_functions

__all__ = [
    "CENTRAL_LOSSES",
    "EQUAL",
    "MODELS",
    "Shapes",
    "bandit",
    "classification",
    "dual_encoder",
    "from_equinox",
    "from_flax",
    "from_functions",
    "from_torch",
    "grouped",
    "linear",
    "logged_bandit",
    "logistic",
    "masked_mean",
    "mixed",
    "mixed_with",
    "paths",
    "problem_from_spec",
    "regression",
    "residual",
    "target",
    "to_torch",
    "with_central_loss",
    "with_group_losses",
]
