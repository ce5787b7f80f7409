"""What a run gives back: the history, the clients, and the model to predict with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cantons.display import Displayed, Table, score
from cantons.errors import amount, unknown
from cantons.metrics import HEADLINES
from cantons.optional import optional_import
from cantons.study.trained import Trained as Trained

# What a printed result shows, of what there is.
SCORES = (("test", "accuracy"), ("test", "reward"), ("test", "reward_dr"), ("test", "recall@10"), ("test", "loss"),
          ("new_test", "accuracy"), ("new_test", "loss"), ("validation", "accuracy"), ("online", "accuracy"),
          ("online", "loss"), ("train", "loss"))

PLOTTED = [[f"{place}.{model}.{metric}.mean" for model in ("personal", "shared")]  # what it plots: the first there is
           for place in ("test", "online") for metric in HEADLINES]


@dataclass(frozen=True, repr=False)
class Result(Displayed):
    """A finished run. `history` has one flat row per evaluation, such as {"round": 10,
    "test.personal.accuracy.mean": 0.97, ...}; `clients` has one column per score of the last one, and `new_clients` the
    same of clients who were held out of training."""

    history: list[dict[str, Any]]
    clients: dict[str, Any]
    summary: dict[str, Any]
    model: Trained
    folder: Path | None = None
    before: Mapping[str, Result] = field(default_factory=dict)  # the stages that this one began with, by name
    new_clients: dict[str, Any] = field(default_factory=dict)  # empty where nobody is held out

    @property
    def final(self) -> dict[str, Any]:
        """The last evaluation."""
        return self.history[-1]

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """Each number of the history as an array over evaluations."""
        names = [name for name, value in self.final.items() if isinstance(value, int | float)]
        return {name: np.array([np.nan if row.get(name) is None else row[name] for row in self.history], float)
                for name in names}

    def frame(self) -> Any:
        """The history as a pandas data frame."""
        return optional_import("pandas", "pandas", "frame()").DataFrame(self.history)

    def plot(self, number: str | None = None, axes: Any = None) -> Any:
        """Numbers of the evaluations against rounds, on matplotlib axes.

        `number` is such as "train.personal.loss.mean"; without it, it is the accuracy, or else the loss, of the
        personalised models and of the shared one on test rows, or on a stream of the models that met it.
        """
        chosen = [number] if number is not None else next(
            ([name for name in names if name in self.arrays] for names in PLOTTED if names[0] in self.arrays
             and np.isfinite(self.arrays[names[0]]).any()), [])
        for name in chosen:
            if name not in self.arrays:
                raise unknown("number of the evaluations", name, self.arrays)
        pyplot = optional_import("matplotlib.pyplot", "", "plot()")
        axes = pyplot.subplots(layout="constrained")[1] if axes is None else axes
        for name in chosen:
            axes.plot(self.arrays["round"], self.arrays[name], label=name)
        axes.set(xlabel="round")
        axes.legend()
        return axes

    def predict(self, rows: Any, client: int | str | None = None, *, encoded: bool = False) -> np.ndarray:
        """The label or number of each raw row, by the common model or a client's: as `model.predict`."""
        return self.model.predict(rows, client, encoded=encoded)

    def predict_proba(self, rows: Any, client: int | str | None = None, *, encoded: bool = False) -> np.ndarray:
        """The probability of each class, in the order of `model.classes_`."""
        return self.model.predict_proba(rows, client, encoded=encoded)

    def outputs(self, rows: Any, client: int | str | None = None, *, encoded: bool = False) -> np.ndarray:
        """What the model computes for each raw row, such as logits."""
        return self.model.outputs(rows, client, encoded=encoded)

    def _display(self) -> tuple[str, Table]:
        if not self.history:
            return "result without evaluations", []
        final, rows = self.final, scores_table(self.final)
        cost = [f"{score(final['bytes_per_client'] / 1024)} KiB sent and received per client"]
        seconds = self.summary.get("median_seconds_per_round")
        rows += [["cost", ", ".join([*cost, *([f"{score(1000 * seconds)} ms per round"] if seconds else [])])]]
        rows += [] if self.folder is None else [["folder", str(self.folder)]]
        tables = "clients, new_clients" if self.new_clients else "clients"
        rows += [["more", f"final, history, {tables}, frame(), plot(), model, predict(rows, client=...)"]]
        tested = f"; test set: {self.summary['test_set']}" if any(row[0].startswith("test ") for row in rows) else ""
        return f"{self.summary['study']}: {amount(final['round'], 'round')}{tested}", rows


def scores_table(record: Mapping[str, Any]) -> list[list[str]]:
    """The scores of one evaluation: a row for each set of examples and metric, a column for each kind of model."""
    rows = [["", "personal", "worst 10%", "shared"]]
    for place, metric in SCORES:
        keys = [f"{place}.{model}" for model in (
            f"personal.{metric}.mean", f"personal.{metric}.worst10", f"shared.{metric}.mean")]
        if _is_number(record.get(keys[0])):
            rows.append([f"{place.replace('new_test', 'new clients')} {metric}", *(
                score(record[key]) if _is_number(record.get(key)) else "–" for key in keys)])
    for key, value in record.items():  # of the shared model on test sets that are nobody's
        name, between, metric = key.partition(".shared.")
        if between and "." not in name + metric and _is_number(value):
            rows.append([f"{name} {metric}", "–", "–", score(value)])
    return rows


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and bool(np.isfinite(value))
