"""PyTorch modules as functions of JAX arrays, by torchax: all that we ask of the two packages goes through here."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from cantons.errors import InputError
from cantons.optional import optional_import
from cantons.problem.torchax_conv import with_patches
from cantons.protocol import Array, Key, PyTree

# PyTorch 2.13 has no operations on named tensors any more. torchax 0.0.13 asks for these when it is imported, to put
# them into tables in which nobody looks them up.
NAMED_TENSORS = {
    "all": "dimname dimname_out", "index_add": "dimname", "index_copy": "dimname", "index_copy_": "dimname",
    "index_fill": "Dimname_Scalar Dimname_Tensor", "index_fill_": "Dimname_Scalar Dimname_Tensor",
    "norm": "names_ScalarOpt_dim names_ScalarOpt_dim_dtype names_dtype_out names_out", "prod": "dim_Dimname",
    "std": "correction_names correction_names_out names_dim names_out", "std_mean": "correction_names names_dim",
    "unbind": "Dimname"}
ONE_AT_A_TIME = threading.RLock()  # a module holds its tensors while it is called


class Called(NamedTuple):
    outputs: Any
    drew: bool  # from the key
    changed: list[str]  # the tensors that the module has replaced or written into


def call_module(module: Any, tensors: Mapping[str, Array], inputs: PyTree, training: bool, key: Key | None) -> Called:
    """What a module computes with these arrays in the places of its parameters and buffers.

    Inputs that are a mapping are given by keyword. Without a key, a module that draws at random fails.
    """
    torch, environment = import_torch(), make_environment()
    with ONE_AT_A_TIME, environment.override_property(prng=key):
        arrays, rows = jax.tree.map(jnp.asarray, (dict(tensors), inputs))
        held, args = environment.j2t_iso(dict(arrays)), environment.j2t_iso(rows)
        module.train(training)
        # Tensors that the module makes on its way are JAX arrays too, unless it asks for another device.
        with environment, torch.device("jax"):
            outputs = torch.func.functional_call(module, held, *(((), args) if isinstance(args, Mapping) else (args,)))
        changed = [name for name in arrays if held[name].jax() is not arrays[name]]
        return Called(environment.t2j_iso(outputs), environment.param.prng is not key, changed)


def import_torch() -> Any:
    return optional_import("torch", "torch", user="a PyTorch model")


@functools.cache
def make_environment() -> Any:
    """Where tensors are JAX arrays: one that is ours alone, so that no setting of anybody else changes."""
    torch = import_torch()
    with _named_tensors(torch):
        try:
            environment = optional_import("torchax", "torch", user="a PyTorch model").tensor.Environment()
        except (AttributeError, ImportError) as error:
            raise InputError(f"torchax cannot be imported with PyTorch {torch.__version__} ({error}); install the "
                             "versions that cantons is tested with: torch 2.13.0 and torchax 0.0.13.") from error
    convolution = with_patches(environment._ops[torch.ops.aten.convolution].func)
    environment.override_op_definition(torch.ops.aten.convolution, lambda *args: environment.j2t_iso(
        convolution(*environment.t2j_iso(args))))
    return environment


@contextmanager
def _named_tensors(torch: Any) -> Iterator[None]:
    """As a context: operations on named tensors that PyTorch lacks have a name, and nothing behind it."""
    packets = [(getattr(torch.ops.aten, name), overload) for name, overloads in NAMED_TENSORS.items()
               for overload in overloads.split()]
    missing = [(packet, overload) for packet, overload in packets if not hasattr(packet, overload)]
    for packet, overload in missing:
        setattr(packet, overload, object())
    try:
        yield
    finally:
        for packet, overload in missing:
            delattr(packet, overload)
