"""What can be wrong with a file, one sentence each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cantons.errors import InputError


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Name the file in whatever keeps us from reading it."""
    try:
        os.stat(path)  # libraries word the absence of a file in many ways
        yield
    except (OSError, EOFError) as error:
        reason = str(getattr(error, "strerror", None) or error).partition("\n")[0].rstrip(".")
        raise InputError(f"cannot read {path}: {reason}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path}: it is not UTF-8 text.") from error


def list_files(folder: Path, *endings: str) -> list[Path]:
    """The folder's files with one of these endings, sorted by name; at least one."""
    found = sorted(file for file in folder.iterdir() if file.suffix in endings)
    if not found:
        raise InputError(f"{folder} holds no file that ends in {' or '.join(endings)}; point path to where they are.")
    return found
