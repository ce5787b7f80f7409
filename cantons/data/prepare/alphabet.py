"""One alphabet for texts of different origin: what is not in it is folded to it where that can be done."""

from __future__ import annotations

import unicodedata

import numpy as np

from cantons.data.prepare.vocabulary import UNKNOWN
from cantons.errors import InputError

ASCII = "\n" + "".join(map(chr, range(32, 127)))  # every character that an English keyboard types, and the line's end
# What Unicode does not take apart into a letter and its accent, or a sign and its variant.
PLAIN = {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ı": "i", "æ": "ae", "Æ": "AE", "œ": "oe",
         "Œ": "OE", "ß": "ss", "þ": "th", "Þ": "Th", "ð": "d", "Ð": "D", "‘": "'", "’": "'", "‚": "'", "′": "'",
         "ʻ": "'", "ʼ": "'", "“": '"', "”": '"', "„": '"', "″": '"', "«": '"', "»": '"', "–": "-", "—": "-",
         "−": "-", "‐": "-", "‑": "-", "⁄": "/", "×": "x", "\t": " ", "\r": "\n"}


def fold_characters(text: str, alphabet: str) -> str:
    """Characters outside the alphabet as those inside that stand for them; what has none stays as it is.

    Accents are left out, typographic signs become plain ones, and letters change their case where only the other one
    is there.

    >>> fold_characters("Café “Zürich” – 戦", ASCII), fold_characters("Café", "abcdef")
    ('Cafe "Zurich" - 戦', 'cafe')
    """
    known = set(alphabet)
    return text.translate({ord(character): _inside(character, known) for character in set(text) - known})


def number_by_alphabet(text: str, alphabet: str) -> np.ndarray:
    """A folded text as numbers: 0 is a character outside the alphabet, and 1, 2, ... are those in it, in its order.

    >>> number_by_alphabet("bad!", "abcd")
    array([2, 1, 4, 0], dtype=int32)
    """
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    numbers = np.zeros(max(map(ord, alphabet)) + 2, np.int32)  # the last place stands for all that is beyond
    numbers[[ord(character) for character in alphabet]] = np.arange(1, len(alphabet) + 1)
    return numbers[np.minimum(points, len(numbers) - 1)]


def symbols_of(alphabet: str) -> tuple[str, ...]:
    """What the numbers stand for."""
    return UNKNOWN, *alphabet


def check_alphabet(alphabet: str) -> None:
    if not alphabet or len(set(alphabet)) < len(alphabet):
        twice = sorted({character for character in alphabet if alphabet.count(character) > 1})
        raise InputError(f"alphabet {f'has {twice[0]!r} more than once' if twice else 'is empty'}; list every "
                         "character that is known once.")


def _inside(character: str, known: set[str]) -> str:
    apart = "".join(part for part in unicodedata.normalize("NFKD", character) if not unicodedata.combining(part))
    plain = "".join(PLAIN.get(part, part) for part in apart)
    for folded in (plain, plain.lower(), plain.upper()):
        if folded and set(folded) <= known:
            return folded
    return character
