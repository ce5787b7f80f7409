"""One Ray for all tests here, started before anything else, and proof that nothing of it is left in the end."""

import os
import secrets
import subprocess
import sys

import pytest
from ray_processes import ray_processes, wait_until

ray = pytest.importorskip("ray", reason="make test-engines installs it")

from cantons.engine.ray_cluster import Cluster, read_token  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left():
    """No process of Ray outlives the tests that started it."""
    before = ray_processes()
    yield
    assert wait_until(lambda: not ray_processes().keys() - before.keys()), ray_processes()


@pytest.fixture(scope="session")
def head(nothing_is_left):
    """The address of a Ray with room for some actors."""
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    process = subprocess.Popen([sys.executable, "-m", "cantons.engine.ray_head", "8"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True, start_new_session=True)
    yield process.stdout.readline().strip()
    process.stdin.close()
    process.wait()
    process.stdout.close()


@pytest.fixture(scope="module")
def connected(head):
    """This process is connected, as a user's own program may be: engines without an address use that Ray."""
    read_token()
    ray.init(address=head, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def kept_actors(connected):
    """Actors that are ended by nobody and serve one session after another: to start them is most of a short test."""
    idle = []

    class Keeping(Cluster):
        def start_actor(self, gpus):
            return idle.pop() if idle else super().start_actor(gpus)

        def end_actor(self, actor):
            idle.append(actor)

    patch = pytest.MonkeyPatch()
    patch.setattr("cantons.engine.ray_session.Cluster", Keeping)
    yield
    patch.undo()
    for actor in idle:
        ray.kill(actor)
