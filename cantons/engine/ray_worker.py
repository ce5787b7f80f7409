"""The process of an actor: what it asks Ray for, what it is started with, and what it does."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

GPU_MEMORY = 0.9  # what actors take of a GPU's memory in all


class Worker:
    """Some shards of clients in one process."""

    def __init__(self) -> None:
        self._shards: dict[int, Any] = {}

    def open(self, number: int, make: Callable[[Any, Any], Any], work: Any, share: Any) -> None:
        """Begin with a shard, or anew."""
        self._shards.pop(number, None)  # before the new one takes memory
        self._shards[number] = make(work, share)

    def call(self, number: int, method: str, *arguments: Any) -> Any:
        """What a shard's method gives."""
        return getattr(self._shards[number], method)(*arguments)

    def pid(self) -> int:
        return os.getpid()


def resources_of(gpus: float) -> dict[str, float]:
    """What an actor asks Ray for."""
    return {"num_cpus": 1, "num_gpus": gpus} if gpus else {"num_cpus": 1}


def environment_of(gpus: float) -> dict[str, str]:
    """What an actor's process is started with: one core, or a share of a GPU's memory; compiled code is kept on disk.

    >>> environment_of(0.5)["XLA_PYTHON_CLIENT_MEM_FRACTION"]
    '0.450'
    """
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR") or str(Path.home() / ".cache" / "cantons" / "compiled")
    found = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
             "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    if gpus:
        return found | {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{GPU_MEMORY * gpus:.3f}"}
    # NPROC is what XLA asks for the number of its threads.
    return found | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1", "NPROC": "1"}
