"""The manual of Python as text by author: each of its chapters is a client, and nothing is downloaded.

What `help("topics")` prints comes with Python. Other versions of Python have other words in some places, and so other
numbers come out, a little.
"""

from pydoc_data.topics import topics

from cantons.data import Federation, NaturalDivision, from_texts, recorded
from cantons.options import Flat
from cantons.ranges import Classes, Count

SHORT = 20  # characters of a line that may stand in several chapters, such as "Note:"
HELD_OUT = NaturalDivision(test=0.2)


@recorded
def chapters(*, length: Count = 20, vocabulary: Classes = 10_000,
             division: Flat[NaturalDivision] = HELD_OUT) -> Federation:
    """Words of Python's manual by chapter, to predict the next one; what is no word that is known is not scored.

    length: how many words an example has.
    vocabulary: how many words are known, the most frequent ones of the training clients.
    """
    return from_texts(without_repetitions(topics), tokens="words", length=length, vocabulary=vocabulary,
                      score_unknown=False, pad=True, division=division, name="python_manual")


def without_repetitions(texts: dict[str, str]) -> dict[str, str]:
    """Lines that stand in several texts are left to the shortest: else others would train on one's test rows."""
    known: set[str] = set()
    kept = {}
    for name in sorted(texts, key=lambda name: (len(texts[name]), name)):
        lines = [line.strip() for line in texts[name].splitlines()]
        kept[name] = "\n".join(line for line in lines if len(line) <= SHORT or line not in known)
        known.update(lines)
    return kept
