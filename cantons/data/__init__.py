"""Owns: files become arrays with one row per client. May import: protocol, errors, shuffle."""

from cantons.data.build import federation, from_clients
from cantons.data.builtin import digits, libsvm, npz
from cantons.data.federation import Federation, Population, pooled
from cantons.data.partition import dirichlet, iid, natural, shards
from cantons.data.ragged import Examples, Ragged, from_sizes, pack
from cantons.data.readers import Table, read_libsvm, read_npz
from cantons.data.scaling import scaled
from cantons.data.synthetic import synthetic
from cantons.data.tasks import Tasks, draw_tasks, feature_halves, task_protocol

__all__ = [
    "Examples",
    "Federation",
    "Population",
    "Ragged",
    "Table",
    "Tasks",
    "digits",
    "dirichlet",
    "draw_tasks",
    "feature_halves",
    "federation",
    "from_clients",
    "from_sizes",
    "iid",
    "libsvm",
    "natural",
    "npz",
    "pack",
    "pooled",
    "read_libsvm",
    "read_npz",
    "scaled",
    "shards",
    "synthetic",
    "task_protocol",
]
