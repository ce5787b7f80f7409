"""Two nodes with a token of their own; one of them is lost."""

import re
import uuid

import jax
import numpy as np
import pytest
import ray
from ray_processes import NODE, end_node, ray_processes, start_node, wait_until

import cantons as ct


@pytest.fixture
def two_nodes(head):
    """The address of a cluster of two nodes with one CPU each, and the mark of the second."""
    marks = [uuid.uuid4().hex for _ in range(2)]
    said = start_node(marks[0], "--num-cpus=1", "--head", "--port=0", "--include-dashboard=false")
    address = re.search(r"--address='([\d.]+:\d+)'", said)[1]
    start_node(marks[1], "--num-cpus=1", f"--address={address}")
    yield address, marks[1]
    for mark in marks:
        end_node(mark)
        assert wait_until(lambda mark=mark: not ray_processes(NODE, mark))


class Watching(ct.Callback):
    """After two rounds, ends the node with this mark, if there was an actor on it."""

    def __init__(self, mark=None):
        self.mark, self.sentences = mark, []

    def evaluated(self, record):
        if record["round"] == 2 and self.mark:
            assert any("ray::Worker" in line for line in ray_processes(NODE, self.mark).values())
            end_node(self.mark)

    def noticed(self, sentence):
        self.sentences.append(sentence)


def test_the_clients_of_a_lost_node_go_to_the_others_from_rows_that_are_here(two_nodes):
    address, second = two_nodes
    data = ct.digits(clients=9)
    problem = ct.classification(data, ct.mlp(hidden=(4,)), split="output")

    def play(callbacks):
        return ct.run(problem, data, ct.scaffold(batch_size=8), rounds=6, cohort=6, evaluate_every=2,
                      engine=ct.Ray(actors=2, address=address), callbacks=callbacks)

    whole, watching = play([Watching()]), Watching(second)
    result = play([watching])
    assert result.summary["actors_lost"] >= 1
    assert any("an actor was lost" in sentence for sentence in watching.sentences)
    jax.tree.map(np.testing.assert_array_equal, result.model.state, whole.model.state)
    assert result.model.state.uploads.sum() == 6 * 6
    assert wait_until(lambda: sum(node["Alive"] for node in nodes(address)) == 1)


def nodes(address):
    ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    try:
        return ray.nodes()
    finally:
        ray.shutdown()
