"""Memory is estimated before it is taken: a refusal in a sentence is kinder than a process that dies."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

from cantons.errors import InputError

CGROUP = Path("/sys/fs/cgroup")


def require(needed_bytes: int, what: str, there: int | None = None) -> None:
    """Refuse what does not fit: `what` is the subject of the sentence, such as "data of 5 clients".

    `there` is how much there is; if not given, what this process may still take.
    """
    there = available() if there is None else there
    if there is not None and needed_bytes > there:
        raise InputError(f"{what} needs {_gib(needed_bytes)} GiB of memory, there are {_gib(there)}; make it smaller.")


def give_back() -> None:
    """Hand freed memory back to the system, where the C library can: it keeps what compilers and checkpoints leave.

    Of 604 MiB that a process held after 250 predictions, 220 were such.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def available() -> int | None:
    """Bytes this process may still take, as far as the system tells."""
    found = [bytes for bytes in (_of_machine(), _of_container()) if bytes is not None]
    return min(found, default=None)


def _of_machine() -> int | None:
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return 1024 * sum(int(lines[name].split()[0]) for name in ("MemAvailable", "SwapFree"))
    except (OSError, KeyError, ValueError, IndexError):
        pass
    try:  # not Linux: all there is must do for what is free
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _of_container() -> int | None:
    """What the second version of control groups leaves us; files in its cache are given up when asked."""
    try:
        limit, current = (int((CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        kept = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        return max(limit - current + int(kept["inactive_file"]), 0)
    except (OSError, KeyError, ValueError):  # no such group, or one whose limit is "max"
        return None


def _gib(bytes: int) -> str:
    """
    >>> _gib(3 * 2**30), _gib(2**29)
    ('3', '0.5')
    """
    gib = bytes / 2**30
    return f"{gib:,.0f}" if gib >= 10 else f"{gib:.2g}"
