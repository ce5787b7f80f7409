"""Owns: clients whose local model is anything at all. May import: engine, protocol, errors, optional."""

from cantons.bring.estimators import PartialFit, Refit
from cantons.bring.linear import Linear
from cantons.bring.local_model import LocalModel
from cantons.bring.torch_module import Torch
from cantons.bring.vowpal import VowpalWabbit

__all__ = ["Linear", "LocalModel", "PartialFit", "Refit", "Torch", "VowpalWabbit"]
