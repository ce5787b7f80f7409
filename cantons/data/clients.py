"""One client's rows per name become a federation, in whatever form the user has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from cantons.data.build import federation
from cantons.data.checks import as_rows, first_names
from cantons.data.federation import Federation
from cantons.data.read.columns import as_table
from cantons.data.read.frames import join_frames, names_in
from cantons.data.split.divide import Division, from_table
from cantons.errors import InputError, unknown
from cantons.protocol import PyTree


def from_clients(clients: Mapping[str, Any], *, targets: str | None = None,
                 inputs: str | Sequence[str] | None = None, ignore: Sequence[str] = (), regression: bool = False,
                 **options: Any) -> Federation:
    """One client's rows per name become a federation.

    Rows are a pair (inputs, targets) of arrays, or a torch `Dataset` of such pairs, which is read by its length; then
    options are those of `federation`. Or they are a pandas or polars frame or an Arrow table; then options are those of
    `csv`, but for the ones about files and partitions.

    >>> ann, bob = (np.zeros((3, 2)), np.zeros(3)), (np.ones((1, 2)), np.ones(1))
    >>> from_clients({"ann": ann, "bob": bob}).train.sizes.tolist()
    [2, 1]
    """
    if not isinstance(clients, Mapping):
        raise InputError(f"from_clients got a {type(clients).__name__}; give a dict with the rows of each client under "
                         "its name.")
    if not clients:
        raise InputError("there are no clients; give at least one name with its (inputs, targets).")
    tables = [name for name, rows in clients.items() if names_in(rows) is not None]
    if tables and len(tables) < len(clients):
        raise InputError(f"the rows of {first_names(tables)} are tables, and those of others are not; give all alike.")
    if tables:
        return _from_tables(clients, targets, inputs, ignore, regression, options)
    for option, value in (("targets", targets), ("inputs", inputs), ("ignore", ignore), ("regression", regression)):
        if value:
            raise InputError(f"{option} is of tables, such as pandas frames, and these clients have arrays; leave it "
                             "out.")
    return _from_pairs({name: _as_pair(name, rows) for name, rows in clients.items()}, options)


def _from_tables(clients: Mapping[str, Any], targets: str | None, inputs: str | Sequence[str] | None,
                 ignore: Sequence[str], regression: bool, options: Mapping[str, Any]) -> Federation:
    if targets is None:
        raise InputError("the clients have tables; give targets, the name of the column to predict.")
    allowed = {"name", "categorical", "missing", *Division._fields} - {"partition", "clients", "alpha"}
    for option in options:
        if option not in allowed:
            raise unknown("option of from_clients for tables:", option, allowed)
    _refuse_empty({str(name): len(rows) for name, rows in clients.items()})
    columns, owners = join_frames({str(name): rows for name, rows in clients.items()})
    missing = options.get("missing", "refuse")
    table = as_table(columns, inputs=inputs, targets=targets, ignore=ignore, regression=regression,
                     categorical=options.get("categorical", ()), missing=missing)
    chosen = {option: value for option, value in options.items() if option in Division._fields}
    return from_table(table._replace(clients=owners), Division(**chosen), name=options.get("name", "data"),
                      missing=missing)


def _as_pair(name: str, rows: Any) -> tuple[PyTree, PyTree]:
    """The rows of a client as (inputs, targets): a pair as it is, a dataset of pairs read from end to end."""
    if isinstance(rows, tuple | list):
        if len(rows) != 2:
            raise InputError(f"client {name!r} has {len(rows)} things; give a pair (inputs, targets).")
        if any(map(_is_dataset, rows)):
            raise InputError(f"client {name!r} has a pair with a dataset in it; give the dataset alone, whose items "
                             "are pairs (input, target). The option test says which part of them is for testing.")
        return rows[0], rows[1]
    if not _is_dataset(rows):
        raise InputError(f"client {name!r} has a {type(rows).__name__}; give a pair (inputs, targets), a frame, or a "
                         "dataset with a length.")
    items = [rows[number] for number in range(len(rows))]  # many datasets have no end but their length
    if not items:
        _refuse_empty({name: 0})
    odd = next((number for number, item in enumerate(items) if not isinstance(item, tuple | list) or len(item) != 2),
               None)
    if odd is not None:
        raise InputError(f"item {odd} of client {name!r}'s dataset is a {type(items[odd]).__name__}; give pairs "
                         "(input, target).")
    try:
        return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *map(tuple, items))
    except ValueError as error:
        raise InputError(f"items of client {name!r}'s dataset differ in shape: {error}; make them alike.") from error


def _is_dataset(rows: Any) -> bool:
    """Has it items and a length, as torch's datasets have, and is it no array?"""
    return hasattr(rows, "__getitem__") and hasattr(rows, "__len__") and not (
        hasattr(rows, "__array__") or isinstance(rows, str | Mapping | tuple | list))


def _from_pairs(pairs: Mapping[str, tuple[PyTree, PyTree]], options: Mapping[str, Any]) -> Federation:
    checked = {name: as_rows(*pair, whose=f" of client {name!r}") for name, pair in pairs.items()}
    pairs = {name: (inputs, targets) for name, (inputs, targets, _) in checked.items()}
    sizes = {name: size for name, (*_, size) in checked.items()}
    _refuse_empty(sizes)
    _check_same_shapes(pairs)
    inputs, targets = jax.tree.map(lambda *leaves: np.concatenate(leaves), *pairs.values())
    return federation(inputs, targets, np.repeat(list(pairs), list(sizes.values())), **options)


def _refuse_empty(sizes: Mapping[str, int]) -> None:
    empty = [name for name, size in sizes.items() if size == 0]
    if empty:
        raise InputError(f"no examples for {first_names(empty)}; leave such clients out or give them some.")


def _check_same_shapes(pairs: Mapping[str, tuple[PyTree, PyTree]]) -> None:
    shapes = {name: jax.tree.map(lambda leaf: str(leaf.shape[1:]), pair) for name, pair in pairs.items()}
    first, expected = next(iter(shapes.items()))
    for name, found in shapes.items():
        for what, one, other in zip(("inputs", "targets"), found, expected, strict=True):
            if one != other:
                raise InputError(f"{what} of client {name!r} have shape {one} per example and those of "
                                 f"client {first!r} {other}; all clients must agree.")
