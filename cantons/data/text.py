"""Text by author, to predict the next character or word: every author is a client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from cantons.data.authors import read_authors
from cantons.data.divide import from_table
from cantons.data.federation import Federation
from cantons.data.recorded import recorded
from cantons.data.table import Table
from cantons.data.vocabulary import fitted, number_characters
from cantons.errors import InputError, at_least, one_of

Tokens = Literal["characters", "words"]
WORD = re.compile(r"\w+(?:'\w+)*|[^\w\s]")  # letters and digits, with apostrophes inside; or a single other sign


@recorded
def text(
    path: str | Path,
    *,
    tokens: Tokens = "characters",
    length: int = 80,
    vocabulary: int = 10_000,
    min_examples: int = 1,
    test: float = 0.2,
    new: float = 0,
    seed: int = 0,
) -> Federation:
    """A folder with one .txt file per author, or an archive as `read_authors` takes it.

    An example is `length` tokens, its target the same shifted by one: what comes after each. Examples of an author
    follow each other without overlap. Words are in lower case. The `vocabulary` most frequent tokens of the training
    clients are known, token 0, which stands for all others, among them.
    """
    authors = read_authors(path)
    table = sequences(authors, tokens, length)
    whole = from_table(table, name=Path(path).stem, min_examples=min_examples, test=test, new=new, seed=seed)
    assert table.clients is not None
    short = len(authors) - len(np.unique(table.clients))
    if short:
        whole = replace(whole, notes=(f"left out: {short} authors with at most {length} {tokens}", *whole.notes))
    return fitted(whole, vocabulary)


def sequences(authors: Mapping[str, str] | Mapping[int, str], tokens: Tokens, length: int) -> Table:
    """Cut each author's text into rows; inputs and targets are numbers of tokens, both [rows, length].

    >>> table = sequences({"ann": "abcabca", "bob": "ca"}, "characters", 3)
    >>> table.inputs, table.targets, table.clients
    (array([[0, 1, 2], [0, 1, 2]], dtype=int32), array([[1, 2, 0], [1, 2, 0]], dtype=int32),
     array(['ann', 'ann'], dtype='<U3'))
    """
    one_of("tokens", tokens, get_args(Tokens))
    at_least("length", length, 1)
    numbers, symbols = _numbered(list(authors.values()), tokens)
    sizes = [max(len(own) - 1, 0) // length for own in numbers]
    if not any(sizes):
        raise InputError(f"length is {length}, and the longest of {len(numbers)} texts has {max(map(len, numbers))} "
                         f"{tokens}; give a length below that.")
    inputs = np.concatenate([own[: size * length] for own, size in zip(numbers, sizes, strict=True)])
    targets = np.concatenate([own[1 : size * length + 1] for own, size in zip(numbers, sizes, strict=True)])
    return Table(inputs.reshape(-1, length), targets.reshape(-1, length), None, np.repeat(list(authors), sizes),
                 vocabulary=symbols)


def _numbered(texts: list[str], tokens: Tokens) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Each text as numbers of its tokens, and the tokens."""
    if tokens == "characters":
        numbers, symbols = number_characters(np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32))
        sizes = [len(own) for own in texts]
    else:
        words = [WORD.findall(own.lower()) for own in texts]
        known: dict[str, int] = {}
        numbers = np.array([known.setdefault(word, len(known)) for own in words for word in own], np.int32)
        symbols, sizes = tuple(known), [len(own) for own in words]
    return np.split(numbers, np.cumsum(sizes)[:-1]), symbols
