"""What can be wrong with a file, one sentence each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from cantons.errors import InputError
from cantons.memory import require

Paths = str | Path | Sequence[str | Path]  # a file, a folder, a pattern such as "sites/*.csv", or a list of them


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Name the file in whatever keeps us from reading it, and in every refusal of what it holds."""
    try:
        os.stat(_as_path(path))  # libraries word the absence of a file in many ways
        yield
    except InputError as error:
        sentence = shorten(error if str(path) in str(error) else f"{path}: {error}", 1000)
        if sentence == str(error):
            raise
        raise InputError(sentence) from error
    except (OSError, EOFError) as error:
        reason = shorten(getattr(error, "strerror", None) or error).rstrip(".")
        raise InputError(f"cannot read {path}: {reason}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {path}: it is not UTF-8 text.") from error


@contextmanager
def decoding(path: str | Path, what: str) -> Iterator[None]:
    """Around a library that decodes a format: libraries raise anything at all when a file is damaged.

    `what` is what the file should be, such as "which should be parquet". Keep mistakes of our own out of this block.
    """
    try:
        yield
    except (InputError, OSError, EOFError, UnicodeDecodeError):  # `reading` has better words for these
        raise
    except RecursionError as error:
        raise InputError(f"cannot read {path}, {what}: it is nested too deep.") from error
    except MemoryError as error:
        raise InputError(f"cannot read {path}, {what}: it asks for more memory than there is.") from error
    except Exception as error:
        reason = shorten(error).rstrip(".") or type(error).__name__
        raise InputError(f"cannot read {path}, {what}: {reason}.") from error


def read_text(path: Path) -> str:
    """The whole of a text file."""
    with reading(path):
        require(8 * path.stat().st_size, f"the text of {path}")  # as bytes, as characters and as what they stand for
        return path.read_text("utf-8-sig")


def list_files(folder: Path, *endings: str) -> list[Path]:
    """The folder's files with one of these endings, sorted by name; at least one. Hidden ones are nobody's data."""
    found = sorted(file for file in folder.iterdir() if file.suffix in endings and not file.name.startswith("."))
    if not found:
        raise InputError(f"{folder} holds no file that ends in {' or '.join(endings)}; point path to where they are.")
    return found


def is_pattern(path: Paths) -> bool:
    """Does it stand for the files that fit it? A file of that very name is meant itself."""
    return isinstance(path, str | Path) and has_magic(str(path)) and not os.path.exists(_as_path(path))


def find_files(path: Paths, *endings: str) -> list[Path]:
    """The files that are meant: of a list, those that fit a pattern, those of a folder with these endings, or one."""
    if isinstance(path, list | tuple):
        found = [file for each in path for file in find_files(each, *endings)]
        if not found:
            raise InputError("path is an empty list; give at least one file.")
        twice = sorted({str(file) for file in found if found.count(file) > 1}) if len(set(found)) < len(found) else []
        if twice:
            raise InputError(f"path names {twice[0]} twice; give every file once.")
        return found
    place = _as_path(path)
    if is_pattern(place):
        found = sorted(Path(file) for file in glob(str(path), recursive=True) if os.path.isfile(file))
        if not found:
            raise InputError(f"no file fits the pattern {path}; point path to where they are.")
        return found
    with reading(place):
        return list_files(place, *endings) if place.is_dir() else [place]


def map_paths(change: Callable[[str | Path], str], path: Paths) -> Any:
    """The same, with every path changed."""
    return change(path) if isinstance(path, str | Path) else [change(each) for each in path]


def _as_path(path: Any) -> Path:
    """A name that the system can look for."""
    try:
        os.fsencode(found := Path(path))
        if str(path) and "\0" not in str(path):
            return found
    except (TypeError, ValueError):
        pass
    raise InputError(f"path is {path!r}; give the name of a file.")


def shorten(reason: object, most: int = 300) -> str:
    """One line of at most so many characters: what cannot be read is often quoted, however long it is."""
    line = " ".join(str(reason).splitlines())
    return line if len(line) <= most else f"{line[: most // 2]} ... {line[-most // 2 :]}"
