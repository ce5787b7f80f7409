"""Local models on the actors of a Ray cluster: what many clients are asked in a step, they do at the same time.

A model lives on its actor alone. If that dies, what the model has learned is gone, and the run ends: it goes on from
its last checkpoint, if it leaves any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cantons.engine import Ray
from cantons.engine.ray_actors import Actors
from cantons.engine.ray_cluster import Cluster, ray_package
from cantons.engine.shares import deal
from cantons.errors import InputError, amount
from cantons.local_models.host import Answer, Lesson, ProcessHost, naming
from cantons.local_models.local_model import LocalModel, kind


class RayHost:
    """All clients' models, dealt out to actors; a Ray of our own starts with `open`."""

    def __init__(self, options: Ray, models: Sequence[LocalModel], names: Sequence[str]):
        if options.actors > len(names):
            raise InputError(f"the engine ray has {options.actors} actors for {amount(len(names), 'client')}; use at "
                             "most as many actors as clients.")
        self.options, self.names = options, names
        self.kinds = [kind(model) for model in models]
        self._deal = deal([1] * len(names), options.actors)
        self._pickled = [_pickle(model, name, "sent to an actor") for model, name in zip(models, names, strict=True)]
        self._dealt: set[int] = set()  # shards that an actor was given
        self._cluster: Cluster | None = None
        self._actors: Actors | None = None

    def open(self) -> None:
        if self._actors is None:
            self._cluster = Cluster(self.options.address, self.options.actors, self.options.gpus)
            self._actors = Actors(self._cluster, self.options.actors, self.options.gpus, _Shard, list(self.names),
                                  self._share, notice=lambda sentence: None)  # a loss is an error here

    def predict(self, asked: Mapping[int, Mapping[str, np.ndarray]], shape: tuple[int, ...]) -> dict[int, Answer]:
        return self._merge(self._ask("predict", [(part, shape) for part in self._split(asked)]), asked)

    def update(self, lessons: Mapping[int, Lesson]) -> None:
        self._ask("update", [(part,) for part in self._split(lessons)])

    def get_states(self) -> dict[int, dict[str, Any]]:
        return self._merge(self._ask("get_states", [()] * self.options.actors), range(len(self.names)))

    def set_states(self, states: Mapping[int, dict[str, Any]]) -> None:
        self._ask("set_states", [(part,) for part in self._split(states)])

    def get_models(self) -> list[LocalModel]:
        pickled = self._merge(self._ask("pickle_models", [()] * self.options.actors), range(len(self.names)))
        return [_unpickle(pickled[index], name) for index, name in enumerate(self.names)]

    def about(self) -> dict[str, Any]:
        return {"clients_at_once": self.options.actors, "actors": self.options.actors}

    def close(self) -> None:
        for held in (self._actors, self._cluster):
            if held is not None:
                held.close()
        self._actors = self._cluster = None

    def _ask(self, method: str, arguments: Sequence[tuple]) -> list[Any]:
        """What the shards reply; models compute in the precision of the run."""
        assert self._actors is not None
        double = jnp.zeros(0).dtype == np.float64
        return self._actors.ask("call", [(double, method, *given) for given in arguments])

    def _split(self, given: Mapping[int, Any]) -> list[dict[int, Any]]:
        """For each shard, what is of its clients."""
        return [{index: given[index] for index in own.tolist() if index in given} for own in self._deal.ids]

    def _merge(self, replies: Sequence[Mapping[int, Any]], order: Any) -> dict[int, Any]:
        found = {index: value for reply in replies for index, value in reply.items()}
        return {index: found[index] for index in order}

    def _share(self, number: int) -> dict[int, bytes]:
        """The models of a shard as they began, for its first actor; there is no second."""
        own = self._deal.ids[number].tolist()
        if number in self._dealt:
            raise InputError(f"an actor died, and with it what the models of its {len(own)} clients, such as "
                             f"{self.names[own[0]]!r}, had learned; a run that leaves checkpoints goes on from the "
                             "last one with run_with_models(..., out=..., resume=True).")
        self._dealt.add(number)
        return {index: self._pickled[index] for index in own}


class _Shard:
    """The models of some clients, in the process of an actor."""

    def __init__(self, names: Sequence[str], pickled: Mapping[int, bytes]):
        self._host = ProcessHost({index: _unpickle(model, names[index]) for index, model in pickled.items()}, names)

    def call(self, double: bool, method: str, *arguments: Any) -> Any:
        with jax.enable_x64(double):
            if method == "pickle_models":
                return {index: _pickle(model, self._host.names[index], "sent back by its actor")
                        for index, model in self._host.models.items()}
            return getattr(self._host, method)(*arguments)


def _pickle(model: LocalModel, client: str, where: str) -> bytes:
    try:
        return ray_package().cloudpickle.dumps(model)
    except Exception as error:  # whatever a stranger's model raises
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"the model of client {client!r}, a {kind(model)}, cannot be {where}, because it cannot be "
                         f"pickled: {reason}; make it without locks, files and other handles on this process, or leave "
                         "engine out.") from error


def _unpickle(model: bytes, client: str) -> LocalModel:
    with naming(client):
        return ray_package().cloudpickle.loads(model)
