"""Personalised, online and mixed federated learning: every client keeps a part of the model of its own."""

# Names are looked up when they are first used (PEP 562): `cantons --help` must not wait for JAX.

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # each `as` itself: so type checkers know that it is meant for others
    from cantons.aggregate import centred_clipping as centred_clipping
    from cantons.aggregate import geometric_median as geometric_median
    from cantons.aggregate import krum as krum
    from cantons.aggregate import mean as mean
    from cantons.aggregate import median as median
    from cantons.aggregate import multi_krum as multi_krum
    from cantons.aggregate import norm_bound as norm_bound
    from cantons.aggregate import trimmed_mean as trimmed_mean
    from cantons.aggregate import weighted_mean as weighted_mean
    from cantons.algorithm import central as central
    from cantons.algorithm import ditto as ditto
    from cantons.algorithm import example_transfer as example_transfer
    from cantons.algorithm import fedadam as fedadam
    from cantons.algorithm import fedalt as fedalt
    from cantons.algorithm import fedavg as fedavg
    from cantons.algorithm import fedavg_finetune as fedavg_finetune
    from cantons.algorithm import fedavgm as fedavgm
    from cantons.algorithm import fedomd as fedomd
    from cantons.algorithm import fedopt as fedopt
    from cantons.algorithm import fedper as fedper
    from cantons.algorithm import fedprox as fedprox
    from cantons.algorithm import fedrep as fedrep
    from cantons.algorithm import fedres_avg as fedres_avg
    from cantons.algorithm import fedres_bandit as fedres_bandit
    from cantons.algorithm import fedres_erm as fedres_erm
    from cantons.algorithm import fedres_naive as fedres_naive
    from cantons.algorithm import fedres_online_sgd as fedres_online_sgd
    from cantons.algorithm import fedres_sgd as fedres_sgd
    from cantons.algorithm import fedsgd as fedsgd
    from cantons.algorithm import fedsim as fedsim
    from cantons.algorithm import fedyogi as fedyogi
    from cantons.algorithm import ffgg as ffgg
    from cantons.algorithm import ffgg_step_sizes as ffgg_step_sizes
    from cantons.algorithm import fictitious_play as fictitious_play
    from cantons.algorithm import independent as independent
    from cantons.algorithm import l2gd as l2gd
    from cantons.algorithm import local_ffgg as local_ffgg
    from cantons.algorithm import one_way_transfer as one_way_transfer
    from cantons.algorithm import online_central as online_central
    from cantons.algorithm import online_independent as online_independent
    from cantons.algorithm import only_central as only_central
    from cantons.algorithm import parallel_centre as parallel_centre
    from cantons.algorithm import parallel_training as parallel_training
    from cantons.algorithm import pfedme as pfedme
    from cantons.algorithm import scaffold as scaffold
    from cantons.algorithm import sequential as sequential
    from cantons.algorithm import two_way_transfer as two_way_transfer
    from cantons.attack import byzantine as byzantine
    from cantons.checks import check as check
    from cantons.clock import asynchronous as asynchronous
    from cantons.clock import online as online
    from cantons.clock import replay as replay
    from cantons.clock import rounds as rounds
    from cantons.data import Federation as Federation
    from cantons.data import at_random as at_random
    from cantons.data import bandit_log as bandit_log
    from cantons.data import by_label as by_label
    from cantons.data import by_name as by_name
    from cantons.data import by_size as by_size
    from cantons.data import classification_bandit as classification_bandit
    from cantons.data import classification_log as classification_log
    from cantons.data import csv as csv
    from cantons.data import digits as digits
    from cantons.data import drifting_targets as drifting_targets
    from cantons.data import federation as federation
    from cantons.data import from_clients as from_clients
    from cantons.data import from_iterable as from_iterable
    from cantons.data import from_log as from_log
    from cantons.data import from_stream as from_stream
    from cantons.data import hdf5 as hdf5
    from cantons.data import huggingface as huggingface
    from cantons.data import leaf as leaf
    from cantons.data import libsvm as libsvm
    from cantons.data import movie_sequences as movie_sequences
    from cantons.data import movielens as movielens
    from cantons.data import npz as npz
    from cantons.data import parquet as parquet
    from cantons.data import restaurants as restaurants
    from cantons.data import stream as stream
    from cantons.data import synthetic as synthetic
    from cantons.data import synthetic_bandit as synthetic_bandit
    from cantons.data import synthetic_least_squares as synthetic_least_squares
    from cantons.data import synthetic_mixture as synthetic_mixture
    from cantons.data import task_protocol as task_protocol
    from cantons.data import text as text
    from cantons.data import with_central as with_central
    from cantons.data import with_validation as with_validation
    from cantons.engine import Local as Local
    from cantons.engine import Plain as Plain
    from cantons.engine import Ray as Ray
    from cantons.errors import InputError as InputError
    from cantons.local_models import LocalModel as LocalModel
    from cantons.models import cnn as cnn
    from cantons.models import embedding as embedding
    from cantons.models import gru as gru
    from cantons.models import linear as linear
    from cantons.models import mlp as mlp
    from cantons.models import resnet18 as resnet18
    from cantons.models import transformer as transformer
    from cantons.problem import bandit as bandit
    from cantons.problem import classification as classification
    from cantons.problem import dual_encoder as dual_encoder
    from cantons.problem import from_equinox as from_equinox
    from cantons.problem import from_flax as from_flax
    from cantons.problem import from_functions as from_functions
    from cantons.problem import from_torch as from_torch
    from cantons.problem import logged_bandit as logged_bandit
    from cantons.problem import logistic as logistic
    from cantons.problem import regression as regression
    from cantons.problem import residual as residual
    from cantons.problem import target as target
    from cantons.problem import to_torch as to_torch
    from cantons.problem import with_central_loss as with_central_loss
    from cantons.problem import with_group_losses as with_group_losses
    from cantons.protocol import Algorithm as Algorithm
    from cantons.protocol import Averages as Averages
    from cantons.protocol import Batch as Batch
    from cantons.protocol import CentralLoss as CentralLoss
    from cantons.protocol import Clock as Clock
    from cantons.protocol import Problem as Problem
    from cantons.protocol import Stack as Stack
    from cantons.protocol import StackRule as StackRule
    from cantons.protocol import Sum as Sum
    from cantons.protocol import SumRule as SumRule
    from cantons.reporting import Comparison as Comparison
    from cantons.reporting import Sweep as Sweep
    from cantons.reporting import compare as compare
    from cantons.reporting import report as report
    from cantons.reporting import sweep as sweep
    from cantons.study.callbacks import Callback as Callback
    from cantons.study.client_model import ClientModel as ClientModel
    from cantons.study.export import export as export
    from cantons.study.given import Study as Study
    from cantons.study.load import load as load
    from cantons.study.read import read_study as read_study
    from cantons.study.result import Result as Result
    from cantons.study.result import Trained as Trained
    from cantons.study.rollouts import rollouts as rollouts
    from cantons.study.run import run as run
    from cantons.study.stages import run_stages as run_stages
    from cantons.study.with_models import run_with_models as run_with_models

__version__ = "0.1.0"

_HOMES = {
    "cantons.aggregate":
        "centred_clipping geometric_median krum mean median multi_krum norm_bound trimmed_mean weighted_mean",
    "cantons.algorithm":
        "central ditto example_transfer fedadam fedalt fedavg fedavg_finetune fedavgm fedomd fedopt fedper fedprox "
        "fedrep fedres_avg fedres_bandit fedres_erm fedres_naive fedres_online_sgd fedres_sgd fedsgd fedsim fedyogi "
        "ffgg ffgg_step_sizes fictitious_play independent l2gd local_ffgg one_way_transfer online_central "
        "online_independent only_central parallel_centre parallel_training pfedme scaffold sequential two_way_transfer",
    "cantons.attack": "byzantine",
    "cantons.local_models": "LocalModel",
    "cantons.checks": "check",
    "cantons.clock": "asynchronous online replay rounds",
    "cantons.data":
        "Federation at_random bandit_log by_label by_name by_size classification_bandit classification_log csv digits "
        "drifting_targets federation from_clients from_iterable from_log from_stream hdf5 huggingface leaf libsvm "
        "movie_sequences movielens npz parquet restaurants stream synthetic synthetic_bandit synthetic_least_squares "
        "synthetic_mixture task_protocol text with_central with_validation",
    "cantons.engine": "Local Plain Ray",
    "cantons.errors": "InputError",
    "cantons.models": "cnn embedding gru linear mlp resnet18 transformer",
    "cantons.problem":
        "bandit classification dual_encoder from_equinox from_flax from_functions from_torch logged_bandit logistic "
        "regression residual target to_torch with_central_loss with_group_losses",
    "cantons.protocol": "Algorithm Averages Batch CentralLoss Clock Problem Stack StackRule Sum SumRule",
    "cantons.reporting": "Comparison Sweep compare report sweep",
    "cantons.study.callbacks": "Callback",
    "cantons.study.client_model": "ClientModel",
    "cantons.study.export": "export",
    "cantons.study.given": "Study",
    "cantons.study.load": "load",
    "cantons.study.read": "read_study",
    "cantons.study.result": "Result Trained",
    "cantons.study.rollouts": "rollouts",
    "cantons.study.run": "run",
    "cantons.study.stages": "run_stages",
    "cantons.study.with_models": "run_with_models",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'cantons' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
