"""The log of a contextual bandit in a CSV file: contexts, actions, rewards, and how likely each action was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cantons.data.federation import Federation
from cantons.data.log import as_log, check_log
from cantons.data.prepare.scaling import Scale
from cantons.data.provenance import recorded
from cantons.data.read.columns import as_table, column, numbers
from cantons.data.read.csv import cells
from cantons.data.read.files import reading
from cantons.data.split.divide import NaturalDivision, from_table
from cantons.data.table import Missing
from cantons.options import Flat


@recorded
def bandit_log(
    path: str | Path,
    *,
    client: str,
    action: str = "action",
    reward: str = "reward",
    propensity: str = "propensity",
    actions: list[str] | None = None,
    inputs: list[str] | None = None,
    ignore: list[str] | None = None,
    separator: str = ",",
    categorical: list[str] | None = None,
    missing: Missing = "refuse",
    scale: Scale = "none",
    division: Flat[NaturalDivision] = NaturalDivision(test=0.2),
) -> Federation:
    """A CSV file with a header and a line for each choice that was made, for the problem `logged_bandit`.

    path: the file.
    client: the column that says whose each row is.
    action: the column of what was chosen, numbers or words.
    reward: the column of what that brought; for costs, negative ones.
    propensity: the column of the probability with which it was chosen, above 0 and at most 1.
    actions: all that could be chosen; what the file has if not given.
    inputs: the columns that describe the context; all that are not named elsewhere if not given.
    ignore: columns to leave alone.
    separator: the character between two columns.
    categorical: columns of numbers to encode one-hot, as columns of text always are.
    missing: of an input without a value, "refuse" the file, or fill in the "mean" of all training rows and mark such
        rows in a feature of their own.
    scale: "unit" divides each feature by its largest absolute value, "standard" gives it mean 0 and variance 1.
    """
    with reading(path), open(path, encoding="utf-8-sig", newline="") as lines:
        columns = cells(lines, path, separator)
    known, targets = check_log(column(columns, action), numbers(columns, reward), numbers(columns, propensity), actions,
                               lambda row: f"{columns.place(row)} of {path}")
    table = as_table(columns, inputs=inputs, targets=reward, client=client, regression=True, missing=missing,
                     ignore=[action, propensity, *(ignore or ())], categorical=categorical or ())
    rows: Any = targets  # of several arrays, which are divided with the inputs
    made = from_table(table._replace(targets=rows), division.with_scale(scale), name=Path(path).stem, missing=missing)
    return as_log(made, known)
