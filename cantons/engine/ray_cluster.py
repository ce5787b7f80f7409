"""A connection to a Ray cluster: one of our own, which ends with us, or one that is there."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from math import ceil
from typing import Any

from cantons.engine.ray_worker import Worker, environment_of, resources_of
from cantons.errors import InputError
from cantons.optional import optional_import

KNOCK_SECONDS = 10.0  # Ray itself waits for minutes for an address that nobody answers
ROOM_SECONDS = 10.0  # resources of a run that has just ended come back this soon
STOP_SECONDS = 60.0  # how long a Ray of ours may take to end
PACKAGES = ("cantons", "jax", "jaxlib", "numpy", "equinox")  # what actors compute with


def ray_package() -> Any:
    return optional_import("ray", "ray", user="the engine ray")


class Cluster:
    """Where actors live. `close` leaves a cluster of others as it was found, and stops one of ours."""

    def __init__(self, address: str | None, actors: int, gpus: float):
        self.ray = ray_package()
        self._head: subprocess.Popen[str] | None = None
        self._connected = False
        self._before: dict[str, str | None] = {}  # the environment as it was before a Ray of our own
        try:
            if self.ray.is_initialized():  # the user's own program is connected: stay there
                if address is not None:
                    raise InputError(f"address is {address!r}, and this process is connected to a Ray already; leave "
                                     "address out, or call ray.shutdown() first.")
            else:
                own = address is None
                self._connect(self._start(actors) if address is None else _knocked(address))
                if not own:
                    self._check_versions()
            self._check_room(actors, gpus)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._connected:
            self._connected = False
            self.ray.shutdown()
        if self._head is not None:
            head, self._head = self._head, None
            assert head.stdin is not None and head.stdout is not None
            head.stdin.close()
            try:
                head.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                head.kill()  # what it has started ends with it
                head.wait()
            head.stdout.close()
            for name, value in self._before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})

    def start_actor(self, gpus: float) -> Any:
        """A new actor; it may take its time, and what it is asked waits for it."""
        return self.ray.remote(Worker).options(
            **resources_of(gpus), runtime_env={"env_vars": environment_of(gpus)}).remote()

    def end_actor(self, actor: Any) -> None:
        self.ray.kill(actor)

    def has_room(self, actors: int, gpus: float) -> bool:
        """Could the nodes that are alive hold so many actors, if they held nothing else?"""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return not _lacks(_total(nodes), actors, gpus)

    def _start(self, actors: int) -> str:
        """A Ray of our own, with as many logical CPUs as actors: they may be more than there are cores."""
        # Ray listens on the machine's address, not on the loopback alone: nobody gets in without the token.
        self._before = {name: os.environ.get(name) for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")}
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        command = [sys.executable, "-m", "cantons.engine.ray_head", str(actors)]
        # In a session of its own, it does not hear the Ctrl-C that is meant for us.
        self._head = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      start_new_session=True)
        assert self._head.stdout is not None
        address = self._head.stdout.readline().strip()
        if not address:
            raise InputError("Ray did not start on this machine; try `ray start --head`, which says why.")
        return address

    def _connect(self, address: str) -> None:
        read_token()
        before = signal.getsignal(signal.SIGTERM)
        try:
            self._ask_for_entry(address)
            self.ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
        except (ConnectionError, self.ray.exceptions.AuthenticationError) as error:
            raise InputError(f"the Ray cluster at {address} does not let this process in; set RAY_AUTH_MODE=token, and "
                             "RAY_AUTH_TOKEN to the cluster's, and run on one of its machines.") from error
        except (RuntimeError, ValueError) as error:  # Ray compares its version and Python's
            raise InputError(f"cannot use the Ray cluster at {address}: {' '.join(str(error).split())}") from error
        self._connected = True
        if threading.current_thread() is threading.main_thread():  # Ray takes SIGTERM for itself
            signal.signal(signal.SIGTERM, before)

    def _ask_for_entry(self, address: str) -> None:
        """Raise AuthenticationError at once for a wrong token: `ray.init` tries again for 20 seconds."""
        with suppress(self.ray.exceptions.RpcError):  # whatever else is wrong, `ray.init` says it
            import_module("ray._raylet").GcsClient(address=address)

    def _check_versions(self) -> None:
        """Refuse nodes that would compute with other packages than this process."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        def look(packages: tuple[str, ...]) -> dict[str, str]:
            # Travels as code, not as a name: a node may not have this file.
            import importlib.metadata
            import sys

            found = {"Python": ".".join(map(str, sys.version_info[:3]))}
            for package in packages:
                try:
                    found[package] = importlib.metadata.version(package)
                except importlib.metadata.PackageNotFoundError:
                    found[package] = "none"
            return found

        look.__module__ = "__main__"
        here = own_versions()
        task = self.ray.remote(look)
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        asked = [task.options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(
            node["NodeID"], soft=False)).remote(PACKAGES) for node in nodes]
        for node, there in zip(nodes, self.ray.get(asked), strict=True):
            wrong = [f"{name} {there[name]}" for name in here if there[name] != here[name]]
            if wrong:
                raise InputError(f"the Ray node {node['NodeManagerAddress']} has {', '.join(wrong)}, and this process "
                                 f"{', '.join(f'{name} {here[name]}' for name in here if there[name] != here[name])}; "
                                 "install the same versions on all machines.")

    def _check_room(self, actors: int, gpus: float) -> None:
        """Refuse what Ray would wait for without an end."""
        lacks = _lacks(self.ray.cluster_resources(), actors, gpus)
        if lacks:
            raise InputError(f"{actors} actors need {lacks} in all; use fewer actors, or a larger cluster.")
        until = time.monotonic() + ROOM_SECONDS
        while lacks := _lacks(self.ray.available_resources(), actors, gpus):
            if time.monotonic() > until:
                raise InputError(f"{actors} actors need {lacks} that nobody else uses now; wait until others have "
                                 "ended, or use fewer actors.")
            time.sleep(0.1)


def read_token() -> None:
    """Let Ray see the environment as it is now: it has read it when it was imported."""
    raylet = import_module("ray._raylet")
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


def own_versions() -> dict[str, str]:
    """Of what this process computes with."""
    found = {"Python": ".".join(map(str, sys.version_info[:3]))}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def _total(resources: list[dict[str, float]]) -> dict[str, float]:
    return {name: sum(each.get(name, 0) for each in resources) for name in ("CPU", "GPU")}


def _lacks(there: dict[str, float], actors: int, gpus: float) -> str:
    """What is missing for so many actors, in words."""
    per_gpu = int(1 / gpus) if 0 < gpus < 1 else 1
    wanted = {"CPU": float(actors), "GPU": float(ceil(actors / per_gpu) * max(gpus, 1)) if gpus else 0.0}
    return " and ".join(f"{wanted[name]:g} {name}s, where there are {there.get(name, 0):g}"
                        for name in wanted if there.get(name, 0) < wanted[name])


def _knocked(address: str) -> str:
    """The address, if anybody answers there."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise InputError(f"address is {address!r}; give HOST:PORT of a Ray cluster, such as 10.0.0.1:6379.")
    try:
        socket.create_connection((host, int(port)), timeout=KNOCK_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"nobody answers at the Ray address {address}: {reason}; see `ray status` on that machine, or "
                         "leave address out for a Ray of your own.") from error
    return address
