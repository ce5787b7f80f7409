"""Flower's partitioners, by their interface: `dataset` is set once, and `load_partition` gives each client's rows."""

import numpy as np
import pytest

from cantons.data import Division, Table, flower_clients, from_table
from cantons.errors import InputError

datasets = pytest.importorskip("datasets")
LABELS = np.repeat(np.arange(3), 20)
TABLE = Table(np.random.default_rng(0).normal(size=(60, 2)), LABELS, np.arange(3), np.arange(60) % 4)


class ByRow:
    """A stand-in with the interface of flwr_datasets 0.6: client i gets the rows that `rows[i]` names."""

    def __init__(self, *rows):
        self.rows = rows

    num_partitions = property(lambda self: len(self.rows))

    def load_partition(self, partition_id):
        return self.dataset.select(self.rows[partition_id])


def test_each_row_has_the_number_of_its_client():
    partitioner = ByRow([5, 1], list(range(6, 60)), [0, 2, 3])
    numbers = flower_clients(partitioner, TABLE)
    assert numbers[:7].tolist() == [2, 0, 2, 2, -1, 0, 1]
    assert np.count_nonzero(numbers == -1) == 1  # row 4 was left out
    assert partitioner.dataset.column_names[:2] == ["label", "client"]


def test_a_dataset_is_divided_as_it_is():
    dataset = datasets.Dataset.from_dict({"x": [1.0, 2.0, 3.0]})
    assert flower_clients(ByRow([2], [1, 0]), dataset).tolist() == [1, 1, 0]
    assert dataset.column_names == ["x"]


def test_a_row_of_two_clients_is_refused():
    with pytest.raises(InputError, match="the partitioner gives row 7 to clients 0 and 1"):
        flower_clients(ByRow([3, 7], [7]), TABLE)


def test_other_data_is_refused():
    with pytest.raises(InputError, match=r"flower_clients got a list; give a datasets.Dataset \(one split\)"):
        flower_clients(ByRow([0]), [1, 2])


class TestReal:
    """With flwr-datasets itself."""

    @pytest.fixture
    def partitioners(self):
        pytest.importorskip("flwr_datasets")
        import flwr_datasets.partitioner
        return flwr_datasets.partitioner

    def test_iid_gives_equal_shares(self, partitioners):
        numbers = flower_clients(partitioners.IidPartitioner(num_partitions=4), TABLE)
        np.testing.assert_array_equal(np.bincount(numbers), [15, 15, 15, 15])

    def test_dirichlet_goes_by_label(self, partitioners):
        partitioner = partitioners.DirichletPartitioner(num_partitions=5, partition_by="label", alpha=0.5,
                                                        min_partition_size=1)
        numbers = flower_clients(partitioner, TABLE)
        assert set(numbers.tolist()) == set(range(5))
        data = from_table(TABLE._replace(clients=numbers), Division(test=0))
        assert data.population == 5 and data.train.sizes.sum() == 60

    def test_natural_ids_are_our_clients(self, partitioners):
        numbers = flower_clients(partitioners.NaturalIdPartitioner(partition_by="client"), TABLE)
        pairs = set(zip(numbers.tolist(), TABLE.clients.tolist(), strict=True))
        assert len(pairs) == 4

    def test_pathological_clients_have_few_labels(self, partitioners):
        partitioner = partitioners.PathologicalPartitioner(num_partitions=6, partition_by="label",
                                                           num_classes_per_partition=1)
        numbers = flower_clients(partitioner, TABLE)
        assert all(len(set(LABELS[numbers == client])) == 1 for client in range(6))

    def test_what_flower_refuses_is_one_sentence(self, partitioners):
        used = partitioners.IidPartitioner(num_partitions=4)
        flower_clients(used, TABLE)
        with pytest.raises(InputError, match="the partitioner cannot divide this data: .*assigned only once") as error:
            flower_clients(used, TABLE)
        assert "\n" not in str(error.value)
        with pytest.raises(InputError, match="the partitioner cannot divide this data"):
            flower_clients(partitioners.NaturalIdPartitioner(partition_by="writer"), TABLE)
