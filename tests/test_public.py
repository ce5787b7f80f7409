"""The public face: it changes on purpose, and here."""

import ast
import inspect
import types

import pytest

import cantons
import cantons as ct

FACE = """
    ClientModel Comparison Study Sweep asynchronous compare export read_study replay report sweep
    Algorithm Averages Batch Callback CentralLoss Clock Federation InputError Local LocalModel Plain Problem Ray Result
    Stack StackRule Sum SumRule Trained at_random bandit by_label by_name by_size byzantine central centred_clipping
    check classification classification_bandit cnn csv digits ditto drifting_targets dual_encoder embedding
    example_transfer fedadam fedalt fedavg fedavg_finetune fedavgm federation fedomd fedopt fedper fedprox fedrep
    fedres_avg fedres_bandit fedres_erm fedres_naive fedres_online_sgd fedres_sgd fedsgd fedsim fedyogi ffgg
    ffgg_step_sizes fictitious_play from_clients from_equinox from_flax from_functions from_iterable from_stream
    bandit_log classification_log from_log from_torch logged_bandit to_torch
    geometric_median gru hdf5 huggingface independent krum l2gd leaf libsvm linear load local_ffgg logistic mean median
    mlp movie_sequences movielens multi_krum norm_bound npz one_way_transfer online online_central online_independent
    only_central parallel_centre parallel_training parquet pfedme regression residual resnet18 restaurants rollouts
    rounds run run_stages run_with_models scaffold sequential stream synthetic synthetic_bandit synthetic_least_squares
    synthetic_mixture target task_protocol text transformer trimmed_mean two_way_transfer weighted_mean with_central
    with_central_loss with_group_losses with_validation
""".split()


def test_the_public_face_is_this_list():
    names = {name for name in getattr(cantons, "__all__", dir(cantons)) if not name.startswith("_")
             and not isinstance(getattr(cantons, name), types.ModuleType)}
    assert sorted(names) == sorted(FACE)


def test_type_checkers_are_told_of_every_name():
    imports = [node for node in ast.walk(ast.parse(inspect.getsource(cantons))) if isinstance(node, ast.ImportFrom)]
    told = {alias.asname: node.module for node in imports for alias in node.names if alias.asname == alias.name}
    assert told == cantons._HOME


def test_every_algorithm_of_the_registry_is_on_the_face():
    from cantons.algorithm import ALGORITHMS

    assert {name: getattr(cantons, name) for name in ALGORITHMS} == ALGORITHMS


def test_the_version_is_the_one_of_the_package():
    import tomllib
    from pathlib import Path

    about = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert cantons.__version__ == about["project"]["version"]


@pytest.mark.parametrize("make", [ct.npz, ct.csv, ct.digits, ct.mlp, ct.cnn, ct.rounds, ct.fedavg])
def test_a_misspelt_option_is_answered_with_the_nearest_one(make):
    known = inspect.signature(make).parameters
    option = next(name for name in reversed(known) if len(name) > 3)
    with pytest.raises(ct.InputError, match=f"unknown option of {make.__name__} '{option}x'. Did you mean '{option}'"):
        make(**{f"{option}x": 1})
