"""Movies in the order of their ratings, with the next one as the target: on a file of eight ratings."""

from pathlib import Path

import numpy as np
import pytest

from cantons.data import movie_sequences
from cantons.errors import InputError

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "movielens1m.npz"  # beside the repository, if at all
# User 7 rates 50, 10, 99, 30 in order of time, the last two at one time; user 3 rates 10, 99, 50; user 5 one movie.
RATINGS = ["7::10::4::40", "3::99::1::30", "7::50::5::20", "3::10::2::10", "7::99::3::50", "7::30::3::50",
           "3::50::4::60", "5::10::4::15"]


@pytest.fixture
def file(tmp_path):
    def write(*lines):
        (tmp_path / "ratings.dat").write_text("".join(f"{line}\n" for line in lines))
        return tmp_path / "ratings.dat"
    return write


def test_an_example_is_the_movies_before_and_the_next(file):
    data = movie_sequences(file(*RATINGS), context=2, test=0)
    assert data.vocabulary == ("10", "30", "50", "99") and data.classes == 4 and data.input_shape == (2,)
    assert data.clients.names == ("3", "7")  # a user with a single movie has no example
    np.testing.assert_array_equal(data.train.sizes, [2, 3])
    np.testing.assert_array_equal(data.train.inputs, [[-1, 0], [0, 3], [-1, 2], [2, 0], [0, 3]])
    np.testing.assert_array_equal(data.train.targets, [3, 2, 0, 3, 1])
    assert data.train.inputs.dtype == data.train.targets.dtype == np.int32


def test_longer_contexts_begin_with_nothing(file):
    data = movie_sequences(file(*RATINGS), context=4, test=0)
    np.testing.assert_array_equal(data.train.inputs[2:], [[-1, -1, -1, 2], [-1, -1, 2, 0], [-1, 2, 0, 3]])


def test_the_latest_examples_of_each_user_are_the_test_set(file):
    data = movie_sequences(file(*RATINGS), context=2, test=0.4)
    assert data.train.targets.tolist() == [3, 0, 3] and data.test.targets.tolist() == [2, 1]
    assert data.test_set == "the latest 40% of each client's own examples"
    assert movie_sequences(file(*RATINGS), new=1, test=0).new.train.population == 1


def test_the_latest_examples_of_each_user_are_kept(file):
    data = movie_sequences(file(*RATINGS), context=2, most=1, test=0)
    assert data.train.targets.tolist() == [2, 1] and data.train.inputs.tolist() == [[0, 3], [0, 3]]
    for most in (2, 3, 100):
        sizes = movie_sequences(file(*RATINGS), context=2, most=most, test=0).train.sizes
        assert sizes.tolist() == [min(2, most), min(3, most)]


def test_mistakes_are_refused(file):
    with pytest.raises(InputError, match="ratings.dat: no user has rated two movies"):
        movie_sequences(file(*RATINGS[:2]))
    with pytest.raises(InputError, match="context is 0; give"):
        movie_sequences(file(*RATINGS), context=0)


def test_a_context_that_no_memory_holds_is_refused(file):
    with pytest.raises(InputError, match="5 examples of 2147483647 movies each needs 320 GiB of memory"):
        movie_sequences(file(*RATINGS), context=2**31 - 1, test=0)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data is not here")
def test_movielens_1m_has_about_165_examples_per_user():
    data = movie_sequences(SHARED, test=0)
    assert data.population == 6040 and data.classes == 3706
    assert data.train.sizes.sum() == 1000209 - 6040 and data.train.sizes.max() == 2313
    rows = data.train.inputs[: data.train.sizes[0]], data.train.targets[: data.train.sizes[0]]
    np.testing.assert_array_equal(rows[0][1:, -1], rows[1][:-1])  # what came next is in the following context
