"""A checkpoint carries every leaf a state may have, and one that is not of this run is refused, not called damaged."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.aggregate import mean_of_uploads
from cantons.protocol import Algorithm, PyTree
from cantons.recipe import algorithm
from cantons.study.checkpoint import Checkpoints


class Server(NamedTuple):
    shared: PyTree
    key: jax.Array


class Client(NamedTuple):
    private: PyTree
    key: jax.Array


@algorithm
def own_keys(problem, population, *, step_size: float = 0.1):
    """Server and clients draw from keys that they keep, and leave those alone that they are given."""

    def client_update(key, shared, client, data):
        now, later = jax.random.split(client.key)
        return jax.grad(problem.loss)(shared, client.private, data.sample(now, 4)), client._replace(key=later)

    def server_update(key, server, mean, central):
        now, later = jax.random.split(server.key)
        noisy = step_size * (1 + 0.1 * jax.random.normal(now))
        return Server(jax.tree.map(lambda leaf, gradient: leaf - noisy * gradient, server.shared, mean.value), later)

    return Algorithm(
        init_server=lambda key, shared, private: Server(shared, key),
        init_client=lambda key, shared, private: Client(private, key),
        broadcast=lambda key, server, central: server.shared,
        client_update=client_update,
        aggregate=mean_of_uploads(),
        server_update=server_update,
        model=lambda key, shared, client, data: (shared, client.private),
    )


def bits(tree):
    return [np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)
            for leaf in jax.tree.leaves(tree)]


def test_a_run_that_keeps_keys_in_its_states_resumes_to_the_same_bits(tmp_path, labels):
    problem = ct.logistic(labels)
    whole = ct.run(problem, labels, own_keys(), rounds=6, cohort=3)
    ct.run(problem, labels, own_keys(), rounds=3, cohort=3, out=tmp_path / "run")
    resumed = ct.run(problem, labels, own_keys(), rounds=6, cohort=3, out=tmp_path / "run", resume=True)
    jax.tree.map(np.testing.assert_array_equal, bits(whole.model.state), bits(resumed.model.state))


@pytest.mark.parametrize("implementation", ["threefry2x32", "rbg"])
def test_a_key_comes_back_as_a_key_of_its_kind(tmp_path, implementation):
    state = {"one": jax.random.key(3, impl=implementation), "rows": jax.random.split(jax.random.key(4), 5)}
    Checkpoints(tmp_path).save(1, state, {})
    template = jax.tree.map(lambda key: jax.random.fold_in(key, 0) if not key.shape else key[::-1], state)
    loaded, _, complaints = Checkpoints(tmp_path).newest(template)
    assert not complaints
    assert jax.tree.map(lambda leaf: leaf.dtype, loaded) == jax.tree.map(lambda leaf: leaf.dtype, state)
    jax.tree.map(np.testing.assert_array_equal, bits(loaded), bits(state))


@pytest.mark.parametrize("leaf", [
    np.float64(0.1), np.arange(6, dtype=np.uint32).reshape(2, 3), np.array([True, False]), np.zeros((0, 3), np.float32),
    np.arange(6.0).reshape(2, 3).T, jnp.arange(3, dtype=jnp.bfloat16), np.array([1 + 2j], np.complex64)])
def test_a_leaf_of_any_type_and_shape_comes_back(tmp_path, leaf):
    Checkpoints(tmp_path).save(1, {"leaf": leaf, "file": np.ones(1)}, {"seconds": 0.1, "loss": float("inf")})
    loaded, about, complaints = Checkpoints(tmp_path).newest({"leaf": np.zeros_like(leaf), "file": np.zeros(1)})
    assert not complaints and about == {"seconds": 0.1, "loss": float("inf")}
    assert loaded["leaf"].dtype == leaf.dtype
    np.testing.assert_array_equal(np.asarray(loaded["leaf"]), np.asarray(leaf))


SAVED = {"model": np.zeros((2, 3)), "round": np.int32(4)}


@pytest.mark.parametrize("wanted, sentence", [
    ({"model": np.zeros((2, 3))}, r"it has \['round'\]"),
    ({**SAVED, "control": np.ones(2)}, r"it lacks \['control'\]"),
    ({**SAVED, "model": np.zeros((2, 4))}, r"its \['model'\] is float64 \(2, 3\), and here it is float64 \(2, 4\)"),
    ({**SAVED, "model": np.zeros((2, 3), np.float32)}, r"its \['model'\] is float64 .* here it is float32"),
    ({"weights": np.zeros((2, 3)), "round": np.int32(4)}, r"it lacks \['weights'\] and has \['model'\]"),
])
def test_a_sound_checkpoint_with_other_leaves_is_refused(tmp_path, wanted, sentence):
    Checkpoints(tmp_path).save(4, SAVED, {})
    with pytest.raises(ct.InputError, match=sentence) as refused:
        Checkpoints(tmp_path).newest(wanted)
    assert str(tmp_path) in str(refused.value)
    assert "another version of cantons" in str(refused.value) and "another folder" in str(refused.value)
    assert "damaged" not in str(refused.value)


def test_a_long_list_of_other_leaves_is_cut_short(tmp_path):
    Checkpoints(tmp_path).save(1, {str(number): np.ones(1) for number in range(40)}, {})
    with pytest.raises(ct.InputError, match="and 36 more"):
        Checkpoints(tmp_path).newest({"0": np.ones(1), "other": np.ones(1)})
