"""Which processes of Ray these tests have started: they all inherit a mark in their environment."""

import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

MARK = "CANTONS_TEST_ENGINES"
NODE = "CANTONS_TEST_NODE"
RAY = Path(sys.executable).parent / "ray"
os.environ.setdefault(MARK, uuid.uuid4().hex)


def ray_processes(name=MARK, value=None):
    """The numbers of all other processes that have this mark, and their command lines."""
    mark = f"{name}={value or os.environ[name]}".encode()
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if line:  # a zombie has none
                        found[int(folder.name)] = line[:150]
            except OSError:
                continue
    return found


def wait_until(true, seconds=30):
    """Give something time to become true."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if true():
            return True
        time.sleep(0.1)
    return bool(true())


def start_node(mark, *options):
    """What the command says. The node's processes are daemons, and inherit the mark."""
    return subprocess.run([RAY, "start", "--disable-usage-stats", *options], capture_output=True,
                          text=True, check=True, env={**os.environ, "RAY_AUTH_MODE": "token", NODE: mark}).stdout


def end_node(mark):
    for pid in ray_processes(NODE, mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
