"""The log of a contextual bandit in a CSV file: contexts, actions, rewards, and how likely each action was."""

from __future__ import annotations

from csv import reader
from dataclasses import replace
from pathlib import Path

from cantons.data.build import federation
from cantons.data.federation import Federation
from cantons.data.log import check_log
from cantons.data.prepare.scaling import Scale, scale_inputs
from cantons.data.provenance import recorded
from cantons.data.read.columns import as_table, column, numbers
from cantons.data.read.csv import cells
from cantons.data.read.files import reading
from cantons.data.split.divide import NaturalDivision, fraction_held
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
    separator: str = ",",
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
    inputs: the columns of numbers that describe the context; all that are not named elsewhere if not given.
    separator: the character between two columns.
    scale: "unit" divides each feature by its largest absolute value, "standard" gives it mean 0 and variance 1.
    """
    with reading(path), open(path, encoding="utf-8-sig", newline="") as lines:
        columns = cells(lines, path, separator)
    beside = action, reward, propensity, client
    table = as_table(columns, inputs=inputs or [name for name in columns.names if name not in beside], targets=reward,
                     client=client, regression=True)
    known, targets = check_log(column(columns, action), table.targets, numbers(columns, propensity), actions,
                               lambda row: f"line {_line_of(row, path, separator)} of {path}")
    assert table.clients is not None
    made = federation(table.inputs, targets, table.clients, test=fraction_held(division.test), new=division.new,
                      min_examples=division.min_examples, name=Path(path).stem, seed=division.seed)
    return scale_inputs(replace(made, actions=known), scale)


def _line_of(row: int, path: str | Path, separator: str) -> int:
    """The line of the file in which a row stands, from 1; the header has line 1."""
    with open(path, encoding="utf-8-sig", newline="") as lines:
        parsed = reader(lines, delimiter=separator, skipinitialspace=True)
        next(parsed)
        places = (parsed.line_num for cells in parsed if cells)
        return next(place for number, place in enumerate(places) if number == row)
