"""Trackers: what a run tells its callbacks, told to TensorBoard, MLflow or Weights & Biases.

Every number of every evaluation goes under its own name, with the round as its step; the study goes along at the
start, the summary at the end. Each package is an extra, and is imported when its tracker is made.
"""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from cantons.errors import one_of
from cantons.optional import optional_import
from cantons.study.callbacks import Callback
from cantons.study.plain import flat, plain


def tensorboard(folder: str | Path) -> Callback:
    """Write event files to `folder`, for `tensorboard --logdir`."""
    return _TensorBoard(optional_import("tensorboardX", "tensorboard", user="tensorboard tracking"), Path(folder))


def mlflow(uri: str | None = None, experiment: str = "cantons") -> Callback:
    """Log one MLflow run to the tracking server or store at `uri`, by default the one MLflow itself is set to."""
    return _MLflow(optional_import("mlflow", "mlflow", user="mlflow tracking"), uri, experiment)


def wandb(project: str = "cantons", mode: str = "offline", **options: Any) -> Callback:
    """Log one Weights & Biases run; `options` go to `wandb.init`, such as dir or tags.

    Nothing leaves the machine unless `mode` is "online"; an offline run can be sent later with `wandb sync`.
    """
    one_of("mode", mode, ("offline", "online", "disabled"))
    package = optional_import("wandb", "wandb", user="wandb tracking")
    return _WandB(package, {"project": project, "mode": mode, **options})


def numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of one evaluation, without the round, which is their step."""
    return {name: value for name, value in record.items() if name != "round" and isinstance(value, int | float)}


class _TensorBoard(Callback):
    def __init__(self, package: ModuleType, folder: Path):
        self._package, self._folder = package, folder

    def started(self, study: Mapping[str, Any]) -> None:
        self._writer = self._package.SummaryWriter(str(self._folder))
        self._writer.add_text("study", _as_code(study))

    def evaluated(self, record: Mapping[str, Any]) -> None:
        for name, value in numbers(record).items():
            self._writer.add_scalar(name, value, record["round"])
        self._writer.flush()  # a run may be stopped before it is finished

    def stopped(self, round: int) -> None:
        self._writer.close()

    def finished(self, summary: Mapping[str, Any]) -> None:
        self._writer.add_text("summary", _as_code(summary))
        self._writer.close()


class _MLflow(Callback):
    def __init__(self, package: ModuleType, uri: str | None, experiment: str):
        # A client of our own: the module's functions would share one current run with the user's code.
        self._entities, self._client, self._experiment = package.entities, package.MlflowClient(uri), experiment

    def started(self, study: Mapping[str, Any]) -> None:
        found = self._client.get_experiment_by_name(self._experiment)
        experiment = found.experiment_id if found else self._client.create_experiment(self._experiment)
        self._run = self._client.create_run(experiment, run_name=study["name"]).info.run_id
        options = [self._entities.Param(key, str(value)) for key, value in flat(plain(study)).items()]
        self._client.log_batch(self._run, params=options)
        self._client.log_dict(self._run, plain(study), "study.json")

    def evaluated(self, record: Mapping[str, Any]) -> None:
        now = int(1000 * time.time())
        self._client.log_batch(self._run, metrics=[self._entities.Metric(name, value, now, record["round"])
                                                   for name, value in numbers(record).items()])

    def stopped(self, round: int) -> None:
        self._client.set_terminated(self._run, "KILLED")

    def finished(self, summary: Mapping[str, Any]) -> None:
        self._client.log_dict(self._run, plain(summary), "summary.json")
        self._client.set_terminated(self._run)


class _WandB(Callback):
    def __init__(self, package: ModuleType, options: Mapping[str, Any]):
        self._package, self._options = package, options

    def started(self, study: Mapping[str, Any]) -> None:
        self._run = self._package.init(**{"name": study["name"], "config": plain(study), **self._options})

    def evaluated(self, record: Mapping[str, Any]) -> None:
        self._run.log(numbers(record), step=record["round"])

    def stopped(self, round: int) -> None:
        self._run.finish(exit_code=130)

    def finished(self, summary: Mapping[str, Any]) -> None:
        self._run.summary.update(plain(summary))
        self._run.finish()


def _as_code(value: Mapping[str, Any]) -> str:
    """Indented JSON, which TensorBoard's Markdown leaves as it is."""
    return textwrap.indent(json.dumps(plain(value), indent=2), "    ")
