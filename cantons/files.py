"""The one place that writes files: whole or not at all, or with one sentence that says why not.

A file is written beside its place, flushed to the disk and moved there, so a kill, a full disk or a mistake leaves
what was there before. Nothing else in the package opens a file for writing; tests/test_files.py reads the source.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from cantons.errors import InputError

PARTS = re.compile(r"\..+\.[0-9a-f]{8}\.part|study\.json\.part")  # files being written, by this version and older ones
LONGEST = 150  # bytes of a name that we make: most disks take 255, and .part and -seed are still to come
SEPARATING = re.compile(r"[/\\\x00-\x1f\x7f]")  # what would leave a folder, or could not be typed


class CannotWrite(InputError):
    """A file cannot be written here and now: no space, no permission, or somebody else is writing."""


@contextmanager
def explain(path: Path) -> Iterator[None]:
    """Turn whatever the disk says in this block into one sentence about `path`."""
    try:
        yield
    except OSError as error:
        raise CannotWrite(f"cannot write {path}: {error.strerror or error}.") from error
    except ValueError as error:
        if isinstance(error, InputError) or "null" not in str(error):
            raise
        raise CannotWrite(f"cannot write {str(path)!r}: a name cannot hold a null character.") from error


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to; at the end of the block it takes the place of `path`, after an error it is removed."""
    with explain(path):
        place = Path(os.path.realpath(path))  # a link stays, and what it leads to is replaced
        if place.exists() and not place.is_file():
            raise OSError(errno.EISDIR if place.is_dir() else errno.EINVAL,
                          "it is a folder" if place.is_dir() else "it is not a plain file")
        part = place.parent / f".{place.name}.{secrets.token_hex(4)}.part"
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, place)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
        _sync_folder(place.parent)


def write_text(path: Path, text: str) -> None:
    with writing(path) as file:
        file.write(text.encode("utf-8"))


def append_line(path: Path, line: str) -> None:
    """Add one line; if it does not fit, the file is as long as before."""
    with explain(path), path.open("ab", buffering=0) as file:  # a buffer would try again when it is closed
        before, rest = file.tell(), line.encode("utf-8") + b"\n"
        try:
            while rest:
                rest = rest[file.write(rest):]
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                os.truncate(path, before)
            raise


def make_folder(path: Path, parents: bool = True) -> None:
    with explain(path):
        path.mkdir(parents=parents, exist_ok=True)


def set_aside(path: Path) -> Path:
    """Rename what is damaged; nothing is replaced."""
    with explain(path):
        return path.rename(_damaged_name(path))


def copy_aside(path: Path) -> Path:
    """The same for a file of which something is still needed: until that is written anew, it stays."""
    place = _damaged_name(path)
    with writing(place) as file:
        file.write(path.read_bytes())
    return place


def _damaged_name(path: Path) -> Path:
    """The first free name with .damaged at its end."""
    names = (path.with_name(f"{path.name}.damaged{f'-{number}' if number else ''}") for number in itertools.count())
    return next(name for name in names if not name.exists())


def remove_parts(folder: Path, names: Iterable[str]) -> None:
    """Remove what a kill has left of these files, half written; only for who holds the folder's lock."""
    with explain(folder):
        for each in folder.iterdir():
            if is_part(each) and any(each.name.lstrip(".").startswith(f"{name}.") for name in names):
                each.unlink()


def is_part(path: Path) -> bool:
    """Whether this is a file of ours that was being written."""
    return PARTS.fullmatch(path.name) is not None


def check_replaceable(path: Path, overwrite: bool, ours: Callable[[Path], bool] = lambda path: False,
                      instead: str = "replace it with --overwrite (in Python: overwrite=True)") -> None:
    """Refuse to replace a file, unless it is `ours` or the user said so; `instead` tells what else may be done."""
    with explain(path):
        if path.is_file() and not overwrite and not ours(path):
            raise InputError(f"{path} exists and was not written by this command; choose another name, or {instead}.")


def begins_with(mark: bytes, within: int = 4096) -> Callable[[Path], bool]:
    """Whether a file has our mark among its first bytes."""

    def marked(path: Path) -> bool:
        with path.open("rb") as file:
            return mark in file.read(within)

    return marked


def folder_name(name: str) -> str:
    """A name that stays inside its folder, shortened if no disk takes it; one that would lead elsewhere is refused."""
    found = SEPARATING.search(name)
    if found or not name.strip(" ."):
        raise InputError(f"the name {name!r} cannot be that of a folder: "
                         f"{f'it holds {found[0]!r}' if found else 'it has no letters'}; "
                         "use letters, digits, spaces and signs such as - _ , = instead.")
    whole = os.fsencode(name)
    if len(whole) <= LONGEST:
        return name
    # The digest tells long names apart that begin alike.
    return f"{whole[:LONGEST - 9].decode('utf-8', 'ignore')}-{hashlib.sha256(whole).hexdigest()[:8]}"


def without_separators(label: str) -> str:
    """Words of ours, made from users' values, as part of a folder's name.

    >>> without_separators("path=../x")
    'path=.._x'
    """
    return SEPARATING.sub("_", label)


def _sync_folder(folder: Path) -> None:
    """Make the move itself last; not every disk can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
