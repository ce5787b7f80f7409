"""Owns: files become arrays. May import: protocol, display, errors, memory, optional, options, ranges, recipe,
shuffle.
"""

from cantons.data.build import federation
from cantons.data.centres import Centres, kinds_of
from cantons.data.clients import from_clients
from cantons.data.federation import Federation, Population, pooled, with_keys, with_liars
from cantons.data.log import Log, from_log, logs_of
from cantons.data.make.bandits import Contexts, contexts_of, synthetic_bandit
from cantons.data.make.classification_bandit import classification_bandit
from cantons.data.make.classification_log import classification_log
from cantons.data.make.digits import digits
from cantons.data.make.drifting import drifting_targets
from cantons.data.make.least_squares import synthetic_least_squares
from cantons.data.make.mixture import synthetic_mixture
from cantons.data.make.restaurants import restaurants
from cantons.data.make.synthetic import synthetic
from cantons.data.prepare.alphabet import ASCII
from cantons.data.prepare.pad import pad_to_same_shape
from cantons.data.prepare.scaling import scale_inputs
from cantons.data.provenance import recorded
from cantons.data.ragged import Examples, Ragged, from_sizes, pack
from cantons.data.read.bandit_log import bandit_log
from cantons.data.read.csv import csv, read_csv
from cantons.data.read.hdf5 import hdf5, read_hdf5
from cantons.data.read.huggingface import huggingface, read_huggingface
from cantons.data.read.leaf import leaf, read_leaf
from cantons.data.read.libsvm import libsvm, read_libsvm
from cantons.data.read.movie_sequences import movie_sequences
from cantons.data.read.movielens import movielens, read_movielens
from cantons.data.read.npz import npz, read_npz
from cantons.data.read.parquet import parquet, read_parquet
from cantons.data.read.stream import from_iterable, from_stream, stream
from cantons.data.read.text import from_texts, read_authors, sequences, text
from cantons.data.registry import SOURCES
from cantons.data.skew import label_counts, label_skew, size_quantiles
from cantons.data.split.central import CENTRAL, from_labels, with_central, with_centres
from cantons.data.split.divide import Division, NaturalDivision, from_table
from cantons.data.split.flower import flower_clients
from cantons.data.split.groups import GROUPINGS, at_random, by_label, by_name, by_size
from cantons.data.split.holdout import with_validation
from cantons.data.split.partition import dirichlet, iid, natural, shards
from cantons.data.split.tasks import Tasks, draw_tasks, feature_halves, task_protocol
from cantons.data.stream import Stream, as_stream, pack_by_client
from cantons.data.table import Table

# The data a study can name.
FROM_OTHERS = {make.__name__: make for make in (classification_bandit, classification_log)}
DATA = dict(sorted({**SOURCES, **FROM_OTHERS}.items()))

__all__ = [
    "ASCII",
    "CENTRAL",
    "DATA",
    "GROUPINGS",
    "Centres",
    "Contexts",
    "Division",
    "Examples",
    "Federation",
    "Log",
    "NaturalDivision",
    "Population",
    "Ragged",
    "Stream",
    "Table",
    "Tasks",
    "as_stream",
    "at_random",
    "bandit_log",
    "by_label",
    "by_name",
    "by_size",
    "classification_bandit",
    "classification_log",
    "contexts_of",
    "csv",
    "digits",
    "dirichlet",
    "draw_tasks",
    "drifting_targets",
    "feature_halves",
    "federation",
    "flower_clients",
    "from_clients",
    "from_iterable",
    "from_labels",
    "from_log",
    "from_sizes",
    "from_stream",
    "from_table",
    "from_texts",
    "hdf5",
    "huggingface",
    "iid",
    "kinds_of",
    "label_counts",
    "label_skew",
    "leaf",
    "libsvm",
    "logs_of",
    "movie_sequences",
    "movielens",
    "natural",
    "npz",
    "pack",
    "pack_by_client",
    "pad_to_same_shape",
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
    "scale_inputs",
    "sequences",
    "shards",
    "size_quantiles",
    "stream",
    "synthetic",
    "synthetic_bandit",
    "synthetic_least_squares",
    "synthetic_mixture",
    "task_protocol",
    "text",
    "with_central",
    "with_centres",
    "with_keys",
    "with_liars",
    "with_validation",
]
