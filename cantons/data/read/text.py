"""Text by author, to predict the next character or word: every author is a client.

The texts come from a folder with one file per author, or from an archive of bytes with offsets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from cantons.data.federation import Federation
from cantons.data.prepare.alphabet import check_alphabet, fold_characters, number_by_alphabet, symbols_of
from cantons.data.prepare.vocabulary import fit_vocabulary, number_characters, without_unknown
from cantons.data.provenance import recorded
from cantons.data.read.columns import column
from cantons.data.read.files import list_files, read_text, reading
from cantons.data.read.npz import arrays
from cantons.data.split.divide import NaturalDivision, from_table
from cantons.data.table import Table
from cantons.errors import InputError, at_least, one_of
from cantons.options import Flat
from cantons.ranges import Classes, Count

Tokens = Literal["characters", "words"]
WORD = re.compile(r"\w+(?:'\w+)*|[^\w\s]")  # letters and digits, with apostrophes inside; or a single other sign


@recorded
def text(
    path: str | Path,
    *,
    tokens: Tokens = "characters",
    length: Count = 80,
    vocabulary: Classes = 10_000,
    alphabet: str | None = None,
    score_unknown: bool = True,
    pad: bool = False,
    division: Flat[NaturalDivision] = NaturalDivision(test=0.2),
) -> Federation:
    """Text by author, in examples that follow each other without overlap; the target is what comes after each token.

    path: a folder with one .txt file per author; or an .npz archive with UTF-8 bytes as `text` and `client_start`,
        where each author's begin, with the end of the last one, or `post_start`, where each post begins, and
        `post_author`, its author's number.
    tokens: "characters", or "words" in lower case.
    length: how many tokens an example has.
    vocabulary: how many tokens are known, the most frequent ones of the training clients; token 0, which stands for
        all others, is among them.
    alphabet: if given, the characters that are known, whoever uses them, numbered from 1 in this order; accents and
        typographic signs are folded to it, and 0 stands for what is left. Data with one alphabet go together.
    score_unknown: if false, targets that are token 0 are -1: models are neither trained on them nor scored by them.
    pad: keep the end of a text too, filled up with places whose input is token 0 and whose target is -1; else what does
        not fill an example is left out.
    """
    return from_texts(read_authors(path), tokens=tokens, length=length, vocabulary=vocabulary, alphabet=alphabet,
                      score_unknown=score_unknown, pad=pad, division=division, name=Path(path).stem)


def from_texts(authors: Mapping[str, str] | Mapping[int, str], *, tokens: Tokens = "characters", length: int = 80,
               vocabulary: int = 10_000, alphabet: str | None = None, score_unknown: bool = True, pad: bool = False,
               division: NaturalDivision = NaturalDivision(test=0.2), name: str = "text") -> Federation:
    """The same for texts that are not in files: one per author, by name or number.

    >>> data = from_texts({"ann": "Abba!" * 4, "bob": "Bébé?" * 4}, length=4, alphabet="abe")
    >>> data.vocabulary, data.train.inputs[0].tolist()
    (('<unknown>', 'a', 'b', 'e'), [1, 2, 2, 1])
    """
    table = sequences(authors, tokens, length, alphabet, pad)
    whole = from_table(table, division, name=name)
    assert table.clients is not None
    short = len(authors) - len(np.unique(table.clients))
    if short:
        most = 1 if pad else length
        whole = replace(whole, notes=(f"left out: {short} authors with at most {most} {tokens}", *whole.notes))
    whole = whole if alphabet is not None else fit_vocabulary(whole, vocabulary)
    return whole if score_unknown else without_unknown(whole)


def sequences(authors: Mapping[str, str] | Mapping[int, str], tokens: Tokens, length: int,
              alphabet: str | None = None, pad: bool = False) -> Table:
    """Cut each author's text into rows; inputs and targets are numbers of tokens, both [rows, length].

    With an alphabet, numbers are places in it, and the targets are labels. With `pad`, the last row of a text may be
    filled up with -1; with an alphabet, where inputs are as they will be, its inputs with 0.

    >>> table = sequences({"ann": "abcabca", "bob": "ca"}, "characters", 3)
    >>> table.inputs, table.targets, table.clients
    (array([[0, 1, 2], [0, 1, 2]], dtype=int32), array([[1, 2, 0], [1, 2, 0]], dtype=int32),
     array(['ann', 'ann'], dtype='<U3'))
    """
    one_of("tokens", tokens, get_args(Tokens))
    at_least("length", length, 1)
    numbers, symbols = _number_tokens(list(authors.values()), tokens, alphabet)
    sizes = [max(len(own) - 1 + (length - 1 if pad else 0), 0) // length for own in numbers]
    if not any(sizes):
        raise InputError(f"length is {length}, and the longest of {len(numbers)} texts has {max(map(len, numbers))} "
                         f"{tokens}; give a length below that.")

    def cut(first: int, empty: int) -> np.ndarray:
        """`size` rows of every text from token `first` on, without the last token if `first` is not."""
        rows = []
        for own, size in zip(numbers, sizes, strict=True):
            kept = own[first : len(own) - 1 + first][: size * length]
            rows.append(np.pad(kept, (0, size * length - len(kept)), constant_values=empty))
        return np.concatenate(rows)

    inputs, targets = cut(0, -1 if alphabet is None else 0), cut(1, -1)
    return Table(inputs.reshape(-1, length), targets.reshape(-1, length),
                 None if alphabet is None else np.array(symbols), np.repeat(list(authors), sizes), vocabulary=symbols)


def _number_tokens(texts: list[str], tokens: Tokens,
                   alphabet: str | None) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Each text as numbers of its tokens, and the tokens."""
    if alphabet is not None:
        if tokens != "characters":
            raise InputError(f"alphabet lists characters, and tokens is {tokens!r}; leave one of them out.")
        check_alphabet(alphabet)
        folded = [fold_characters(own, alphabet) for own in texts]
        return [number_by_alphabet(own, alphabet) for own in folded], symbols_of(alphabet)
    if tokens == "characters":
        numbers, symbols = number_characters(np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32))
        sizes = [len(own) for own in texts]
    else:
        words = [WORD.findall(own.lower()) for own in texts]
        known: dict[str, int] = {}
        numbers = np.array([known.setdefault(word, len(known)) for own in words for word in own], np.int32)
        symbols, sizes = tuple(known), [len(own) for own in words]
    return np.split(numbers, np.cumsum(sizes)[:-1]), symbols


def read_authors(path: str | Path) -> Mapping[str, str] | Mapping[int, str]:
    """The text of each author: by file name from a folder of .txt files, by number from an npz archive.

    An archive has UTF-8 bytes as `text`. Author k's are those from `client_start[k]` to `client_start[k + 1]`; or
    else post i is those from `post_start[i]` on, and its author is `post_author[i]`.
    """
    with reading(path):
        if Path(path).is_dir():
            return {file.stem: read_text(file) for file in list_files(Path(path), ".txt")}
        return _from_archive(path)


def _from_archive(path: str | Path) -> dict[int, str]:
    with open(path, "rb") as file:
        archive = arrays(file, path)
        by_client = "client_start" in archive.names
        starts = column(archive, "client_start" if by_client else "post_start")
        owners = np.arange(len(starts) - 1) if by_client else column(archive, "post_author")
        content = column(archive, "text")
    if (content.dtype != np.uint8 or starts.dtype.kind not in "iu" or owners.dtype.kind not in "iuU"
            or {content.ndim, starts.ndim, owners.ndim} != {1} or not 0 < len(owners) == len(starts) - 1):
        raise InputError(f"{path} has text of type {content.dtype}, {len(starts)} starts and {len(owners)} owners; "
                         "give bytes (uint8), the start of every piece and the end of the last, and an owner each, "
                         "a whole number or a word, all of them in arrays with one axis.")
    starts = starts.astype(np.int64)  # differences of unsigned numbers never fall; what wraps here is below 0
    if starts[0] < 0 or starts[-1] > len(content) or (np.diff(starts) < 0).any():
        raise InputError(f"the starts in {path} do not rise from 0 to at most {len(content)}, the length of its text.")
    pieces: dict[int, list[str]] = {}
    whole = content.tobytes()
    for owner, start, end in zip(owners.tolist(), starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        pieces.setdefault(owner, []).append(whole[start:end].decode("utf-8"))
    return {owner: "".join(own) for owner, own in pieces.items()}
