"""Exceptions inside a user's own part, in one sentence with the user's file and line."""

from __future__ import annotations

import site
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from cantons.errors import InputError, shown

OURS = Path(__file__).parents[1]
LIBRARIES = [Path(path) for path in {*site.getsitepackages(), site.getusersitepackages(),
                                     *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))}]
PROMPTS = ("<stdin>", "<ipython-input")  # what is typed has no file


@contextmanager
def blame_user(name: str = "", anywhere: bool = True) -> Iterator[None]:
    """Turn an exception that began in a file of the user's into a sentence; the original is its `__cause__`.

    `name` is what the study calls the part. One written `module:function` is none of ours: it is blamed for what began
    `anywhere`, in a library too. Mistakes of ours stay what they are.
    """
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        place, foreign = users_place(error.__traceback__), ":" in name
        if getattr(error, "filename", None) is not None or (place is None and not (foreign and anywhere)):
            raise  # a file that cannot be used says enough
        said = shown(str(error))[1:-1]
        where = "" if place is None else f" ({place.filename}, line {place.lineno}: {(place.line or '').strip()})"
        raise InputError(f"{name if foreign or place is None else place.name} failed with {type(error).__name__}"
                         f"{': ' if said else ''}{said}{where}.") from error


@contextmanager
def point_at_user() -> Iterator[None]:
    """Leave an exception what it is, and add a note that names the last of the user's own lines on its way."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        place = users_place(error.__traceback__)
        if place is not None:
            error.add_note(f"It came from {place.name} ({place.filename}, line {place.lineno}: "
                           f"{(place.line or '').strip()}).")
        raise


def users_place(trace: TracebackType | None) -> traceback.FrameSummary | None:
    """The last frame in a file that is neither ours nor a library's; who called us is not in the trace."""
    users = [frame for frame in traceback.extract_tb(trace) if _is_users(Path(frame.filename))]
    return users[-1] if users else None


def _is_users(file: Path) -> bool:
    if str(file).startswith(PROMPTS):
        return True
    return file.is_absolute() and OURS not in file.parents and not any(
        library in file.parents for library in LIBRARIES)
