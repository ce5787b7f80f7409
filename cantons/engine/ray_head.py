"""A Ray of our own, for as long as whoever started it lives: `python -m cantons.engine.ray_head CPUS`.

It is a process apart, because starting Ray forks, which a process in which JAX has worked must not do; and because it
sees the end of its input however the other process ends, also by kill -9, and then stops what it has started.
"""

from __future__ import annotations

import sys
from importlib import import_module


def serve(cpus: int) -> None:
    """Start Ray, write its address to stdout, and stop it when stdin ends."""
    ray = import_module("ray")
    # "local": not one that `ray start` or RAY_ADDRESS has left on this machine.
    context = ray.init("local", num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    print(context.address_info["gcs_address"], flush=True)
    sys.stdin.read()
    ray.shutdown()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
