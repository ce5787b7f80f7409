"""Personalised, online and mixed federated learning: every client keeps a part of the model of its own."""

# Names are looked up when they are first used (PEP 562): `cantons --help` must not wait for JAX.

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cantons.algorithm import (
        central,
        fedadam,
        fedavg,
        fedavg_finetune,
        fedavgm,
        fedopt,
        fedprox,
        fedsgd,
        fedyogi,
        independent,
        l2gd,
        scaffold,
    )
    from cantons.clock import rounds
    from cantons.data import (
        Federation,
        csv,
        digits,
        federation,
        from_clients,
        hdf5,
        huggingface,
        leaf,
        libsvm,
        movielens,
        npz,
        parquet,
        synthetic,
        task_protocol,
        text,
        with_validation,
    )
    from cantons.engine import Local
    from cantons.errors import InputError
    from cantons.models import cnn, linear, mlp
    from cantons.problem import classification, from_equinox, from_flax, from_functions, logistic, regression
    from cantons.protocol import Algorithm, Batch, Clock, Problem, Stack, Sum
    from cantons.study.callbacks import Callback
    from cantons.study.load import load
    from cantons.study.result import Result, Trained
    from cantons.study.run import run

__version__ = "0.1.0"

_HOMES = {
    "cantons.algorithm":
        "central fedadam fedavg fedavg_finetune fedavgm fedopt fedprox fedsgd fedyogi "
        "independent l2gd scaffold",
    "cantons.clock": "rounds",
    "cantons.data":
        "Federation csv digits federation from_clients hdf5 huggingface leaf libsvm movielens npz parquet "
        "synthetic task_protocol text with_validation",
    "cantons.engine": "Local",
    "cantons.errors": "InputError",
    "cantons.models": "cnn linear mlp",
    "cantons.problem": "classification from_equinox from_flax from_functions logistic regression",
    "cantons.protocol": "Algorithm Batch Clock Problem Stack Sum",
    "cantons.study.callbacks": "Callback",
    "cantons.study.load": "load",
    "cantons.study.result": "Result Trained",
    "cantons.study.run": "run",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'cantons' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])


__all__ = [
    "Algorithm",
    "Batch",
    "Callback",
    "Clock",
    "Federation",
    "InputError",
    "Local",
    "Problem",
    "Result",
    "Stack",
    "Sum",
    "Trained",
    "central",
    "classification",
    "cnn",
    "csv",
    "digits",
    "fedadam",
    "fedavg",
    "fedavg_finetune",
    "fedavgm",
    "federation",
    "fedopt",
    "fedprox",
    "fedsgd",
    "fedyogi",
    "from_clients",
    "from_equinox",
    "from_flax",
    "from_functions",
    "hdf5",
    "huggingface",
    "independent",
    "l2gd",
    "leaf",
    "libsvm",
    "linear",
    "load",
    "logistic",
    "mlp",
    "movielens",
    "npz",
    "parquet",
    "regression",
    "rounds",
    "run",
    "scaffold",
    "synthetic",
    "task_protocol",
    "text",
    "with_validation",
]
