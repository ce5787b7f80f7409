"""Owns: clients whose local model is anything at all. May import: engine, protocol, errors, files, optional."""

from cantons.local_models.estimators import PartialFit, Refit
from cantons.local_models.linear import Linear
from cantons.local_models.local_model import LocalModel
from cantons.local_models.torch_module import Torch
from cantons.local_models.vowpal import VowpalWabbit

__all__ = ["Linear", "LocalModel", "PartialFit", "Refit", "Torch", "VowpalWabbit"]
