"""Owns: files become arrays with one row per client. May import: protocol, errors, shuffle."""

from cantons.data.alike import alike
from cantons.data.authors import read_authors
from cantons.data.bandits import Contexts, classification_bandit, contexts_of, synthetic_bandit
from cantons.data.blended import blended, restaurants
from cantons.data.build import federation, from_clients
from cantons.data.builtin import digits, libsvm, npz
from cantons.data.csv import csv, read_csv
from cantons.data.divide import from_table
from cantons.data.federation import Federation, Population, pooled
from cantons.data.flower import flower_clients
from cantons.data.hdf5 import hdf5, read_hdf5
from cantons.data.huggingface import huggingface, read_huggingface
from cantons.data.leaf import leaf, read_leaf
from cantons.data.movielens import movielens, read_movielens
from cantons.data.moving import moving
from cantons.data.parquet import parquet, read_parquet
from cantons.data.partition import dirichlet, iid, natural, shards
from cantons.data.ragged import Examples, Ragged, from_sizes, pack
from cantons.data.readers import read_libsvm, read_npz
from cantons.data.recorded import recorded
from cantons.data.scaling import scaled
from cantons.data.skew import label_counts, label_skew, size_quantiles
from cantons.data.stream import Stream, as_stream, by_client
from cantons.data.streams import from_iterable, from_stream, stream
from cantons.data.synthetic import synthetic
from cantons.data.table import Table
from cantons.data.tasks import Tasks, draw_tasks, feature_halves, task_protocol
from cantons.data.text import text
from cantons.data.validation import with_validation

# The data a study can name.
DATA = {make.__name__: make for make in (
    blended, classification_bandit, csv, digits, hdf5, huggingface, leaf, libsvm, movielens, moving, npz, parquet,
    restaurants, stream, synthetic, synthetic_bandit, text)}

__all__ = [
    "DATA",
    "Contexts",
    "Examples",
    "Federation",
    "Population",
    "Ragged",
    "Stream",
    "Table",
    "Tasks",
    "alike",
    "as_stream",
    "blended",
    "by_client",
    "classification_bandit",
    "contexts_of",
    "csv",
    "digits",
    "dirichlet",
    "draw_tasks",
    "feature_halves",
    "federation",
    "flower_clients",
    "from_clients",
    "from_iterable",
    "from_sizes",
    "from_stream",
    "from_table",
    "hdf5",
    "huggingface",
    "iid",
    "label_counts",
    "label_skew",
    "leaf",
    "libsvm",
    "movielens",
    "moving",
    "natural",
    "npz",
    "pack",
    "parquet",
    "pooled",
    "read_authors",
    "read_csv",
    "read_hdf5",
    "read_huggingface",
    "read_leaf",
    "read_libsvm",
    "read_movielens",
    "read_npz",
    "read_parquet",
    "recorded",
    "restaurants",
    "scaled",
    "shards",
    "size_quantiles",
    "stream",
    "synthetic",
    "synthetic_bandit",
    "task_protocol",
    "text",
    "with_validation",
]
