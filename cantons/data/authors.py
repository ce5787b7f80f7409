"""Who wrote what: a folder with one text file per author, or an archive of bytes with offsets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cantons.data.columns import column
from cantons.data.files import inside, reading
from cantons.data.readers import arrays
from cantons.errors import InputError


def read_authors(path: str | Path) -> Mapping[str, str] | Mapping[int, str]:
    """The text of each author: by file name from a folder of .txt files, by number from an npz archive.

    An archive has UTF-8 bytes as `text`. Author k's are those from `client_start[k]` to `client_start[k + 1]`; or
    else post i is those from `post_start[i]` on, and its author is `post_author[i]`.
    """
    with reading(path):
        if Path(path).is_dir():
            return {file.stem: _text(file) for file in inside(Path(path), ".txt")}
        return _from_archive(path)


def _text(file: Path) -> str:
    with reading(file):
        return file.read_text("utf-8-sig")


def _from_archive(path: str | Path) -> dict[int, str]:
    with open(path, "rb") as file:
        archive = arrays(file, path)
        by_client = "client_start" in archive.names
        starts = column(archive, "client_start" if by_client else "post_start")
        owners = np.arange(len(starts) - 1) if by_client else column(archive, "post_author")
        content = column(archive, "text")
    if content.dtype != np.uint8 or starts.dtype.kind not in "iu" or len(owners) != len(starts) - 1:
        raise InputError(f"{path} has text of type {content.dtype}, {len(starts)} starts and {len(owners)} owners; "
                         "give bytes (uint8), the start of every piece and the end of the last, and an owner each.")
    if starts[0] < 0 or starts[-1] > len(content) or (np.diff(starts) < 0).any():
        raise InputError(f"the starts in {path} do not rise from 0 to at most {len(content)}, the length of its text.")
    pieces: dict[int, list[str]] = {}
    whole = content.tobytes()
    for owner, start, end in zip(owners.tolist(), starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        pieces.setdefault(owner, []).append(whole[start:end].decode("utf-8"))
    return {owner: "".join(own) for owner, own in pieces.items()}
