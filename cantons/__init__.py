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
        fedomd,
        fedopt,
        fedprox,
        fedres_avg,
        fedres_bandit,
        fedres_erm,
        fedres_naive,
        fedres_online_sgd,
        fedres_sgd,
        fedsgd,
        fedyogi,
        fictitious_play,
        independent,
        l2gd,
        online_central,
        online_independent,
        scaffold,
    )
    from cantons.clock import online, rounds
    from cantons.data import (
        Federation,
        classification_bandit,
        csv,
        digits,
        drifting_targets,
        federation,
        from_clients,
        from_iterable,
        from_stream,
        hdf5,
        huggingface,
        leaf,
        libsvm,
        movielens,
        npz,
        parquet,
        restaurants,
        stream,
        synthetic,
        synthetic_bandit,
        synthetic_mixture,
        task_protocol,
        text,
        with_validation,
    )
    from cantons.engine import Local
    from cantons.errors import InputError
    from cantons.local_models import LocalModel
    from cantons.models import cnn, embedding, linear, mlp
    from cantons.problem import (
        bandit,
        classification,
        from_equinox,
        from_flax,
        from_functions,
        logistic,
        regression,
        residual,
    )
    from cantons.protocol import Algorithm, Batch, Clock, Problem, Stack, Sum
    from cantons.study.callbacks import Callback
    from cantons.study.load import load
    from cantons.study.result import Result, Trained
    from cantons.study.rollouts import rollouts
    from cantons.study.run import run
    from cantons.study.with_models import run_with_models

__version__ = "0.1.0"

_HOMES = {
    "cantons.algorithm":
        "central fedadam fedavg fedavg_finetune fedavgm fedomd fedopt fedprox fedres_avg fedres_bandit fedres_erm "
        "fedres_naive fedres_online_sgd fedres_sgd fedsgd fedyogi fictitious_play independent l2gd online_central "
        "online_independent scaffold",
    "cantons.local_models": "LocalModel",
    "cantons.clock": "online rounds",
    "cantons.data":
        "Federation classification_bandit csv digits drifting_targets federation from_clients from_iterable "
        "from_stream hdf5 huggingface leaf libsvm movielens npz parquet restaurants stream synthetic synthetic_bandit "
        "synthetic_mixture task_protocol text with_validation",
    "cantons.engine": "Local",
    "cantons.errors": "InputError",
    "cantons.models": "cnn embedding linear mlp",
    "cantons.problem":
        "bandit classification from_equinox from_flax from_functions logistic regression residual target",
    "cantons.protocol": "Algorithm Batch Clock Problem Stack Sum",
    "cantons.study.callbacks": "Callback",
    "cantons.study.load": "load",
    "cantons.study.result": "Result Trained",
    "cantons.study.rollouts": "rollouts",
    "cantons.study.run": "run",
    "cantons.study.with_models": "run_with_models",
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
    "LocalModel",
    "Problem",
    "Result",
    "Stack",
    "Sum",
    "Trained",
    "bandit",
    "central",
    "classification",
    "classification_bandit",
    "cnn",
    "csv",
    "digits",
    "drifting_targets",
    "embedding",
    "fedadam",
    "fedavg",
    "fedavg_finetune",
    "fedavgm",
    "federation",
    "fedomd",
    "fedopt",
    "fedprox",
    "fedres_avg",
    "fedres_bandit",
    "fedres_erm",
    "fedres_naive",
    "fedres_online_sgd",
    "fedres_sgd",
    "fedsgd",
    "fedyogi",
    "fictitious_play",
    "from_clients",
    "from_equinox",
    "from_flax",
    "from_functions",
    "from_iterable",
    "from_stream",
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
    "online",
    "online_central",
    "online_independent",
    "parquet",
    "regression",
    "residual",
    "restaurants",
    "rollouts",
    "rounds",
    "run",
    "run_with_models",
    "scaffold",
    "stream",
    "synthetic",
    "synthetic_bandit",
    "synthetic_mixture",
    "target",
    "task_protocol",
    "text",
    "with_validation",
]
