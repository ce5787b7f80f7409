"""LEAF's JSON files: users become clients, and the folders train and test stay apart."""

import json

import numpy as np
import pytest

from cantons.data import leaf, read_leaf
from cantons.errors import InputError


def content(**users):
    return {"users": list(users), "num_samples": [len(y) for _, y in users.values()],
            "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()}}


ANN, BOB = ([[0.5, 1], [2, 3], [4, 5]], [3, 7, 3]), ([[6, 7]], [9])


@pytest.fixture
def file(tmp_path):
    def write(value, name="all.json"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path
    return write


def test_one_file_has_the_rows_of_its_users(file):
    table = read_leaf(file(content(ann=ANN, bob=BOB)))
    np.testing.assert_array_equal(table.inputs, [[0.5, 1], [2, 3], [4, 5], [6, 7]])
    np.testing.assert_array_equal(table.classes[table.targets], [3, 7, 3, 9])
    assert table.clients.tolist() == ["ann"] * 3 + ["bob"] and table.test is None


def test_a_user_of_several_files_has_the_rows_of_all(file):
    file(content(ann=ANN), "1.json")
    path = file(content(ann=ANN, bob=BOB), "2.json").parent
    data = leaf(path, test=0)
    assert data.clients.names == ("ann", "bob") and data.train.sizes.tolist() == [6, 1]


def test_the_folder_test_is_the_test_set(file):
    file(content(ann=ANN, bob=BOB), "train/a.json")
    path = file(content(bob=([[8, 9]], [7]), ann=([], [])), "test/a.json").parents[1]
    data = leaf(path)
    assert data.train.sizes.tolist() == [3, 1] and data.test.sizes.tolist() == [0, 1]
    np.testing.assert_array_equal(data.test.inputs, [[8, 9]])
    assert data.classes == 3 and data.test_set == "the rows marked as test"
    assert leaf(path, test=0.5).test.sizes.tolist() == [2, 1]  # all rows pooled and drawn anew


def test_regression_keeps_the_numbers(file):
    data = leaf(file(content(ann=([[1], [2]], [0.5, 1.5]))), regression=True, test=0)
    assert data.classes is None and data.train.targets.tolist() == [0.5, 1.5]


def test_strings_become_numbers_of_the_characters_that_clients_train_with(file):
    file(content(ann=(["abab", "baba"], ["a", "b"])), "train/a.json")
    path = file(content(ann=(["abxa"], ["y"])), "test/a.json").parents[1]
    data = leaf(path)
    assert data.vocabulary == ("<unknown>", "a", "b") and data.classes == 3
    decoded = ["".join(data.vocabulary[number] for number in row) for row in data.train.inputs]
    assert decoded == ["abab", "baba"]
    assert data.train.targets.tolist() == [1, 2]
    assert data.test.inputs.tolist() == [[1, 2, 0, 1]] and data.test.targets.tolist() == [0]


def test_characters_of_new_clients_alone_are_unknown(file):
    users = {letter: ([letter * 3] * 4, [letter] * 4) for letter in "abcde"}
    data = leaf(file(content(**users)), new=2)
    assert len(data.vocabulary) == 4 and not data.new.train.inputs.any() and data.train.inputs.all()


@pytest.mark.parametrize("value, sentence", [
    ("{", "cannot read .*all.json, which should be JSON: Expecting property name"),
    ([1, 2], "all.json has no list 'users'; LEAF's files have the lists users and num_samples"),
    ({"users": [], "num_samples": []}, "all.json has no dict 'user_data'"),
    (content(), "there are no clients in .*all.json"),
    (content(ann=ANN) | {"num_samples": [4]}, "num_samples in .*all.json is 4 for user 'ann', who has 3 y"),
    (content(ann=ANN) | {"num_samples": [3, 4]}, "all.json has 1 users and 2 num_samples"),
    (content(ann=ANN) | {"users": ["eve"]}, "user_data in .*all.json has no x and y for user 'eve'"),
    (content(ann=ANN) | {"user_data": {"ann": {"x": [[1]]}}}, "no x and y for user 'ann'"),
    (content(ann=([[1, 2], [3]], [0, 1])), "x of user 'ann' in .*all.json is no list of numbers"),
    (content(ann=([[1, None]], [0])), "x of user 'ann' in .*all.json is no list of numbers"),
    (content(ann=([[1]], [0, 1])), r"inputs of client 'ann' in .*all.json have shape \(1, 1\) and its targets \(2,\)"),
    (content(ann=ANN, bob=([[1]], [0])), r"inputs of client 'bob' in .* are numbers of shape \(1,\) and those of "
                                         r"client 'ann' numbers of shape \(2,\); all clients must agree"),
    (content(ann=ANN, bob=([["a", "b"]], [0])), "inputs of client 'bob' in .* are words"),
    (content(ann=ANN, bob=([], [])), "no examples for 'bob' in .*all.json"),
    (content(ann=([[1], [float("nan")]], [0, 1])), r"inputs hold nan in row 1 \(from 0\) of client 'ann'"),
    (content(ann=(["abc", "ab"], ["c", "d"])), "x in .*all.json are strings; give numbers, or strings of equal length"),
    (content(ann=(["1.jpg", "2.jpg"], [0, 1])), "x in .*all.json are strings"),
    (content(ann=([["ab"], ["cd"]], ["c", "d"])), "x in .*all.json are strings"),
])
def test_bad_files_are_refused_by_name(file, value, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        leaf(file(value))
    assert "\n" not in str(error.value)


def test_a_client_that_is_only_tested_is_refused(file):
    file(content(ann=ANN), "train/a.json")
    path = file(content(eve=BOB), "test/a.json").parents[1]
    with pytest.raises(InputError, match="no training examples for 'eve'"):
        leaf(path)


def test_a_folder_without_json_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"holds no file that ends in .json"):
        leaf(tmp_path)
