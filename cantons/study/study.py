"""A study is what is run, compared and swept: read from a file (`read_study`), or made of parts in Python (`Study`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cantons.data import Federation
from cantons.engine import Local
from cantons.errors import InputError
from cantons.phases import listening
from cantons.protocol import Problem, Recipe
from cantons.study.blame import blame_user
from cantons.study.callbacks import Callbacks, Several
from cantons.study.folder import Folder
from cantons.study.progress import watching
from cantons.study.resolve import Resolved, resolve
from cantons.study.result import Result
from cantons.study.run import run


class AnyStudy(ABC):
    """All that decides what a run computes; `source` names it in messages, `name` in tables."""

    source: str
    stages: Mapping[str, AnyStudy] = {}  # of one with stages, each as a study of its own

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def stem(self) -> str:
        """What folders are named after."""

    @abstractmethod
    def parts(self, data: Federation | None = None) -> tuple[Problem, Federation, Recipe, dict[str, Any]]:
        """The problem, the data (`data`, where it is made already), the algorithm, the other arguments of `run`."""

    @abstractmethod
    def federation(self) -> Federation:
        """The data, with the datacenter's if there is one, and with groups."""

    @abstractmethod
    def changed(self, changes: Mapping[str, Any]) -> AnyStudy:
        """The same study with other values under these dotted keys, such as "algorithm.step_size"."""

    @abstractmethod
    def algorithm(self) -> dict[str, Any]:
        """The name of the algorithm and the options that the study gives it: those left open are not there."""

    @abstractmethod
    def algorithm_recipe(self) -> Recipe:
        """The same with all of its options."""

    @abstractmethod
    def has_data_of(self, other: AnyStudy) -> bool:
        """Whether both are about the same data."""

    def run(self, *, callbacks: Callbacks = (), progress: bool | None = True, **options: Any) -> Result:
        """Build the parts and run them; `options` are those of `cantons.run` that are not part of a study."""
        try:
            with watching(progress) as watchers, blame_user():
                told = [*callbacks, *watchers]
                with listening(Several(told).entered):
                    return self._run(callbacks=told, progress=None, **options)
        except InputError as error:
            raise InputError(f"{self.source}: {error}") from error

    def check_folder(self, folder: Path, accept_changes: bool = False) -> None:
        """Refuse a run folder that holds a run of something else."""
        there = Folder(folder)
        if there.study_file.exists():
            there.compare(self.resolved().study, accept_changes)

    def resolved(self, **options: Any) -> Resolved:
        """The run, ready to begin; of a study with stages, the last one."""
        problem, data, recipe, chosen = self.parts()
        return resolve(problem, data, recipe, **{"engine": Local(), **chosen}, **options)

    def _run(self, **options: Any) -> Result:
        problem, data, recipe, chosen = self.parts()
        return run(problem, data, recipe, **chosen, **options)
