"""Whatever is done to a file: its reader takes it, or refuses it in a sentence that names it."""

import pytest
from samples import READERS, SAMPLES, VARIANTS

from cantons.data import DATA

EVERY = {**{name: (name, make) for name, make in SAMPLES.items()}, **VARIANTS}


def test_every_reader_has_a_sample():
    assert sorted(SAMPLES) == READERS


@pytest.mark.parametrize("what", EVERY)
def test_every_sample_is_sound(what, tmp_path):
    reader, make = EVERY[what]
    path, options = make(tmp_path)
    assert DATA[reader](path, **options).population > 1
