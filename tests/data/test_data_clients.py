"""Clients' rows in whatever form people have them become the same federation."""

import numpy as np
import pytest

from cantons.data import from_clients
from cantons.errors import InputError

pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")

ANN = {"age": [31, 25, 40], "who": ["a", "b", "c"], "height": [1.5, 2.0, 1.75], "sick": ["no", "yes", "no"]}
BOB = {"sick": ["yes", "no"], "height": [1.25, 1.0], "age": [50, 60], "who": ["d", "e"]}


class Endless:
    """A dataset as torch has them, which never raises an IndexError."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, number):
        return np.float32([number, 1]), number % 2


def with_pandas_types(columns):
    return pandas.DataFrame(columns).astype({"sick": "category", "age": "Int64"})


@pytest.mark.parametrize("make", [pandas.DataFrame, pyarrow.table, with_pandas_types])
def test_frames_and_tables_are_clients(make):
    data = from_clients({"ann": make(ANN), "bob": make(BOB)}, targets="sick", ignore=["who"], test=0)
    assert data.clients.names == ("ann", "bob") and data.classes == 2
    np.testing.assert_array_equal(data.train.inputs, [[31, 1.5], [25, 2], [40, 1.75], [50, 1.25], [60, 1]])
    np.testing.assert_array_equal(data.train.targets, [0, 1, 0, 1, 0])
    numbers = from_clients({"ann": make(ANN)}, targets="height", inputs=["age"], regression=True, scale="unit", test=0)
    assert numbers.classes is None and numbers.train.inputs.max() == 1


def test_a_dataset_is_read_by_its_length():
    data = from_clients({"ann": Endless(3), "bob": Endless(2)}, classes=2, test=0)
    assert data.train.sizes.tolist() == [3, 2] and data.train.targets.tolist() == [0, 1, 0, 0, 1]
    np.testing.assert_array_equal(data.train.inputs[:, 0], [0, 1, 2, 0, 1])


def test_a_dataset_of_torch_is_one():
    torch = pytest.importorskip("torch")
    dataset = torch.utils.data.TensorDataset(torch.arange(6.0).reshape(3, 2), torch.tensor([0, 1, 1]))
    data = from_clients({"ann": dataset, "bob": torch.utils.data.Subset(dataset, [2])}, classes=2, test=0)
    np.testing.assert_array_equal(data.train.inputs, [[0, 1], [2, 3], [4, 5], [4, 5]])


@pytest.mark.parametrize("clients, options, sentence", [
    ({"ann": pandas.DataFrame(ANN)}, {}, "give targets, the name of the column to predict"),
    ({"ann": pandas.DataFrame(ANN)}, {"targets": "sik"}, "'sik'. Did you mean 'sick'"),
    ({"ann": pandas.DataFrame(ANN)}, {"targets": "sick", "clases": 2}, "unknown option of from_clients for tables:"),
    ({"ann": pandas.DataFrame(ANN), "bob": (np.ones(2), np.ones(2))}, {"targets": "sick"}, "give all alike"),
    ({"ann": pandas.DataFrame(ANN), "bob": pandas.DataFrame(BOB).drop(columns="age")}, {"targets": "sick"},
     "client 'bob' has no column 'age', which client 'ann' has"),
    ({"bob": pandas.DataFrame(BOB).iloc[:0]}, {"targets": "sick"}, "no examples for 'bob'"),
    ({"ann": pandas.DataFrame([[1, 2]])}, {"targets": "sick"}, "give every column a name of its own"),
    ({"ann": (np.ones(2), np.ones(2))}, {"targets": "sick"}, "targets is of tables"),
    ({"ann": Endless(0)}, {}, "no examples for 'ann'"),
    ({"ann": np.ones(3)}, {}, "client 'ann' has a ndarray; give a pair"),
    ({"ann": iter([])}, {}, "client 'ann' has a list_iterator; give a pair"),
    ({"ann": (np.ones(2),) * 3}, {}, "client 'ann' has 3 things; give a pair"),
    ({"ann": (Endless(3), Endless(2))}, {"classes": 2}, "a pair with a dataset in it; give the dataset alone"),
    ([(np.ones(2), np.ones(2))], {}, "from_clients got a list; give a dict"),
])
def test_what_is_wrong_with_clients_is_said(clients, options, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        from_clients(clients, **options)
    assert "\n" not in str(error.value)


def test_rows_of_frames_are_named_by_client():
    frame = pandas.DataFrame(BOB | {"age": [1.0, np.inf]})
    with pytest.raises(InputError, match=r"inputs hold inf in row 1 \(from 0\) of client 'bob'"):
        from_clients({"ann": pandas.DataFrame(ANN), "bob": frame}, targets="sick", ignore=["who"])
