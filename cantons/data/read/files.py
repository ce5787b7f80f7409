"""What can be wrong with a file, one sentence each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cantons.errors import InputError
from cantons.memory import require


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
    """The folder's files with one of these endings, sorted by name; at least one."""
    found = sorted(file for file in folder.iterdir() if file.suffix in endings)
    if not found:
        raise InputError(f"{folder} holds no file that ends in {' or '.join(endings)}; point path to where they are.")
    return found


def _as_path(path: str | Path) -> Path:
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
