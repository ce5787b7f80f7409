"""MovieLens: three formats, the same ratings."""

from pathlib import Path

import numpy as np
import pytest

from cantons.data import as_stream, movielens, read_movielens
from cantons.errors import InputError

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "movielens1m.npz"  # beside the repository, if at all
USER, MOVIE = [7, 3, 7, 3, 3, 7], [50, 10, 10, 99, 50, 99]
RATING, TIME = [5, 3.5, 4, 1, 2, 3], [60, 20, 40, 30, 10, 50]
DAT = "".join(f"{user}::{movie}::{rating}::{time}\n"
              for user, movie, rating, time in zip(USER, MOVIE, RATING, TIME, strict=True))
CSV = "userId,movieId,rating,timestamp\n" + DAT.replace("::", ",")


@pytest.fixture
def file(tmp_path):
    def write(content, name="ratings.dat"):
        (tmp_path / name).write_text(content)
        return tmp_path / name
    return write


@pytest.fixture
def archive(tmp_path):
    def write(**arrays):
        whole = {"user": USER, "movie": MOVIE, "rating": RATING, "timestamp": TIME}
        np.savez(tmp_path / "ratings.npz", **whole | arrays)
        return tmp_path / "ratings.npz"
    return write


def test_every_format_gives_the_same_table(file, archive):
    paths = [file(DAT), file(CSV, "ratings.csv"), archive()]
    for path in [*paths, paths[0].parent]:
        table = read_movielens(path)
        assert table.vocabulary == ("10", "50", "99")
        np.testing.assert_array_equal(table.inputs, [1, 0, 0, 2, 1, 2])
        np.testing.assert_array_equal(table.targets, RATING)
        np.testing.assert_array_equal(table.clients, USER)
        np.testing.assert_array_equal(table.times, TIME)


def test_users_are_clients_who_rate_or_like(file):
    data = movielens(file(DAT), test=0)
    assert data.clients.names == ("3", "7") and data.classes is None and data.input_shape == ()
    assert data.train.inputs.dtype == np.int32 and data.train.targets.tolist() == [3.5, 1, 2, 5, 4, 3]
    liked = movielens(file(DAT), target="like", test=0)
    assert liked.classes == 2 and liked.train.targets.tolist() == [0, 0, 0, 1, 1, 0]
    assert liked.vocabulary == ("10", "50", "99")


def test_by_time_the_latest_ratings_are_the_test_set(file):
    data = movielens(file(DAT), by_time=True, test=0.3)
    assert data.train.targets.tolist() == [2, 3.5, 4, 3] and data.test.targets.tolist() == [1, 5]
    assert data.test_set == "the latest 30% of each client's own examples"
    assert movielens(file(DAT), by_time=True, test=0.99).train.sizes.tolist() == [1, 1]
    assert movielens(file(DAT), by_time=True, test=0).test.sizes.tolist() == [0, 0]


def test_ratings_are_a_stream(file):
    stream = as_stream(read_movielens(file(DAT)))
    assert stream.time.tolist() == sorted(TIME) and stream.client.tolist() == [0, 0, 0, 1, 1, 1]
    assert stream.targets.tolist() == [2, 3.5, 1, 4, 3, 5]


@pytest.mark.parametrize("content, name, sentence", [
    (DAT + "1::2::3\n", "ratings.dat", r"line 7 of .*ratings.dat has 3 values for 4 columns \(userId, movieId"),
    (DAT + "1::2::good::4\n", "ratings.dat", r"column 'rating' in .*ratings.dat holds 'good' in line 7"),
    (CSV.replace("movieId", "movie"), "ratings.csv", "unknown column in .*: 'movieId'. Did you mean 'movie'"),
    ("", "ratings.dat", "ratings.dat holds no rows"),
    (DAT.replace("3.5", "nan"), "ratings.dat", r"column 'rating' in .*ratings.dat has no value in line 2"),
    (DAT, "ratings.npz", "ratings.npz: it is not an npz file"),
])
def test_bad_files_are_refused_by_name(file, content, name, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        movielens(file(content, name))
    assert "\n" not in str(error.value)


def test_other_mistakes_are_refused(file, archive, tmp_path):
    with pytest.raises(InputError, match="holds neither ratings.csv nor ratings.dat"):
        movielens(tmp_path)
    with pytest.raises(InputError, match=r"user, movie, rating, timestamp in .* have shapes \(6,\), \(5,\)"):
        movielens(archive(movie=MOVIE[:5]))
    with pytest.raises(InputError, match="target is 'stars'; give one of 'rating', 'like'"):
        movielens(file(DAT), target="stars")
    with pytest.raises(InputError, match="test is 1; give a number from 0 to below 1"):
        movielens(file(DAT), by_time=True, test=1)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data is not here")
def test_movielens_1m_has_6040_users_and_3706_rated_movies():
    data = movielens(SHARED, target="like", by_time=True)
    assert data.population == 6040 and len(data.vocabulary) == 3706
    assert data.train.sizes.sum() + data.test.sizes.sum() == 1000209
