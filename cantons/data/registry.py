"""The data a study can name. What is made from other data, as `classification_bandit` is, `cantons.data` adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cantons.data.federation import Federation
from cantons.data.make.bandits import synthetic_bandit
from cantons.data.make.digits import digits
from cantons.data.make.drifting import drifting_targets
from cantons.data.make.least_squares import synthetic_least_squares
from cantons.data.make.mixture import synthetic_mixture
from cantons.data.make.restaurants import restaurants
from cantons.data.make.synthetic import synthetic
from cantons.data.read.bandit_log import bandit_log
from cantons.data.read.csv import csv
from cantons.data.read.hdf5 import hdf5
from cantons.data.read.huggingface import huggingface
from cantons.data.read.leaf import leaf
from cantons.data.read.libsvm import libsvm
from cantons.data.read.movie_sequences import movie_sequences
from cantons.data.read.movielens import movielens
from cantons.data.read.npz import npz
from cantons.data.read.parquet import parquet
from cantons.data.read.stream import stream
from cantons.data.read.text import text
from cantons.errors import unknown

SOURCES: dict[str, Callable[..., Federation]] = {make.__name__: make for make in (
    bandit_log, csv, digits, drifting_targets, hdf5, huggingface, leaf, libsvm, movie_sequences, movielens, npz,
    parquet, restaurants, stream, synthetic, synthetic_bandit, synthetic_least_squares, synthetic_mixture, text)}


def make_data(table: Mapping[str, Any]) -> Federation:
    """The data that a table describes; its `name` finds the maker, the rest are options."""
    name = table.get("name", "")
    if name not in SOURCES:
        raise unknown("data", name, SOURCES)
    return SOURCES[name](**{option: value for option, value in table.items() if option != "name"})
