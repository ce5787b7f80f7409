"""Dropout has a key while it trains and none when it predicts; the key follows from seed, client, round and step."""

from dataclasses import replace

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.data import from_sizes, with_keys
from cantons.engine.central import divide_batches
from cantons.engine.devices import mesh_of
from cantons.engine.stepper import shapes_that_travel
from cantons.errors import InputError
from cantons.models.dropout import dropper
from cantons.problem import Shapes
from cantons.protocol import Batch

KEY = jax.random.key(0)
RANDOM = np.random.default_rng(0)
DATA = ct.federation(np.zeros((15, 2), np.float32), np.zeros(15, np.float32), np.arange(15) % 5, test=0)  # 3 rows each
ONES = jnp.ones((200, 300))


def test_what_is_left_makes_up_for_what_is_dropped():
    drop = dropper(0.25, KEY)
    first, second = np.asarray(drop(ONES)), np.asarray(drop(ONES))
    assert set(np.unique(first)) == {0, np.float32(1 / 0.75)} and abs(first.mean() - 1) < 0.01
    assert 0.05 < (first != second).mean() < 0.95  # another mask at each call
    for rate, key in ((0.0, KEY), (0.25, None)):
        assert dropper(rate, key)(ONES) is ONES


MODELS = {"mlp": (lambda rate: ct.mlp(hidden=[20], dropout=rate), (6, 6)),
          "cnn": (lambda rate: ct.cnn(channels=[2], dense=8, dropout=rate), (6, 6)),
          "embedding": (lambda rate: ct.embedding(6, width=4, hidden=[8], dropout=rate), (4,)),
          "gru": (lambda rate: ct.gru(6, width=8, units=8, dropout=rate), (4,)),
          "transformer": (lambda rate: ct.transformer(6, width=8, blocks=1, heads=2, dropout=rate), (4,))}


@pytest.mark.parametrize("name", MODELS)
def test_models_drop_while_they_train_and_never_when_they_predict(name):
    model, shape = MODELS[name]
    problem, without = (ct.classification(Shapes(shape, 3), model(rate)) for rate in (0.5, 0.0))
    assert problem.draws and not without.draws and problem.spec["model"]["dropout"] == 0.5
    inputs = RANDOM.integers(0, 6, (8, *shape)).astype(np.int32 if model(0.0)(shape, 3).vocabulary else np.float32)
    targets = RANDOM.integers(0, 3, without.predict(*without.init(KEY), inputs).shape[:-1])
    batch = Batch(inputs, targets, np.ones(8, np.float32))
    params = jax.tree.map(lambda leaf: RANDOM.normal(size=leaf.shape).astype(np.float32),
                          jax.eval_shape(problem.init, KEY))
    loss, plain = jax.jit(problem.loss), jax.jit(without.loss)
    with_a_key, again, another = (loss(*params, batch._replace(key=key)) for key in (KEY, KEY, jax.random.key(1)))
    assert with_a_key == again != another
    assert loss(*params, batch) == plain(*params, batch._replace(key=KEY)) != with_a_key
    scores = jax.jit(problem.score)(*params, batch._replace(key=KEY))
    np.testing.assert_allclose(scores["loss"].mean(), plain(*params, batch), rtol=1e-5)


def test_resnet_drops_what_enters_its_last_layer():
    model, inputs = ct.resnet18(dropout=0.5)((4, 4), 3), np.zeros((2, 4, 4), np.float32)
    params = jax.eval_shape(model.init, KEY)
    drawn = [str(jax.make_jaxpr(apply)(params, inputs, *key)).count("random_bits[") for apply, *key in (
        (model.train, KEY), (model.apply,))]
    assert drawn == [1, 0]


def test_a_transformer_drops_what_each_half_of_a_block_adds():
    """All that the network knows is one half's bias: answers depend on the draw where that is dropped."""
    model, random = ct.transformer(6, width=8, blocks=2, heads=2, dropout=0.5)((4,), 3), np.random.default_rng(1)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), jax.eval_shape(model.init, KEY))
    nothing["norm"]["scale"] = jnp.ones(8)
    nothing["output"]["weight"] = jnp.asarray(random.normal(size=(8, 3)), jnp.float32)
    answer, tokens = jax.jit(model.train), np.zeros((1, 4), np.int32)
    for block in ("block0", "block1"):
        for half, last in (("attention", "output"), ("dense", "outer")):
            params = jax.tree.map(lambda leaf: leaf, nothing)
            params[block][half][last]["bias"] = jnp.asarray(random.normal(size=8), jnp.float32)
            one, other = (answer(params, tokens, key) for key in (KEY, jax.random.key(1)))
            assert np.abs(one - other).max() > 0.1 and np.ptp(one, axis=1).max() > 0.1  # each place draws for itself


def test_an_embedding_drops_vectors_and_what_hidden_layers_give():
    """Of one number each: a vector of 1 becomes 0 or 2, and relu(vector + 1) becomes 0, or twice that."""
    one = {"weight": jnp.ones((1, 1)), "bias": jnp.zeros(1)}
    params = {"table": jnp.ones((1, 1)), "layer0": {**one, "bias": jnp.ones(1)}, "layer1": one}
    tokens, answers = np.zeros((100, 1), np.int32), {}
    for width in (1, None):
        model = ct.embedding(1, width=width, hidden=[1], dropout=0.5)((1,), 1)
        assert (model.apply(params, tokens) == 2).all()
        answers[width] = set(np.unique(model.train(params, tokens, KEY)))
    assert answers == {1: {0, 2, 6}, None: {0, 4}}  # without vectors a token is a one, which stays


def test_a_gru_drops_vectors_and_what_enters_its_last_layer_and_no_state_on_the_way():
    model, one = ct.gru(1, width=1, units=1, dropout=0.5)((6,), 1), {"weight": jnp.ones((1, 1)), "bias": jnp.zeros(1)}
    params = {"table": jnp.ones((1, 1)), "input": {"weight": jnp.ones((1, 3)), "bias": jnp.ones(3)},
              "recurrent": {"weight": jnp.ones((1, 3)), "bias": jnp.ones(3)}, "output": one}
    tokens = np.zeros((100, 6), np.int32)

    def states(vector):
        return model.apply({**params, "table": jnp.full((1, 1), vector)}, tokens[:1])[0, :, 0]

    # Where vectors are 0 anyhow, what is left of an answer tells the state, which no place before has changed.
    found = model.train({**params, "table": jnp.zeros((1, 1))}, tokens, KEY)[..., 0]
    np.testing.assert_allclose(found, np.where(found == 0, 0, 2 * states(0.0)), rtol=1e-6)
    assert 0.4 < (found == 0).mean() < 0.6
    first = np.unique(model.train(params, tokens, KEY)[:, 0, 0])  # from a vector of 0 or 2, dropped or doubled
    np.testing.assert_allclose(first, np.sort([0, 2 * states(0.0)[0], 2 * states(2.0)[0]]), rtol=1e-6)


def draws(train):
    """A problem whose gradient is what it drew: a client's private number tells the sum of its draws."""
    return ct.from_functions(lambda key: {"own": jnp.zeros(1), "all": jnp.zeros(1)},
                             lambda params, inputs: params["own"] * inputs[:, :1], train=train,
                             loss=lambda outputs, targets: outputs[:, 0], split="own")


def by_key(params, inputs, key):
    return params["own"] * jax.random.uniform(key) + 0 * inputs[:, :1]


PROBLEM, KEYED = draws(by_key), with_keys(DATA, True)


@pytest.mark.parametrize(("work", "fewer"), [
    ({"steps": 2, "batch_size": 2}, {"steps": 1, "batch_size": 2}), ({"batch_size": 2}, {"batch_size": 3}),
    ({"steps": 2, "batch_size": None}, {"steps": 1, "batch_size": None})], ids=["sample", "epoch", "full"])
def test_clients_rounds_and_steps_draw_for_themselves_and_a_seed_repeats_it(played, work, fewer):
    recipes = {recipe: ct.fedavg(step_size=1.0, **options) for recipe, options in (("two", work), ("one", fewer))}

    def drawn(rounds, steps="two", **options):
        """What every client drew in all."""
        return -played(PROBLEM, KEYED, recipes[steps], rounds, **options).clients.private["own"][:, 0]

    first, later = drawn(1), drawn(2) - drawn(1)  # two steps in each round
    assert len({round(float(value), 5) for value in [*first, *later]}) == 10
    assert (np.abs(first - 2 * drawn(1, "one")) > 1e-4).all()  # the second step does not repeat the first
    assert (first != drawn(1, seed=1)).all()
    np.testing.assert_array_equal(first, drawn(1, engine=ct.Local(devices=2)))


def test_a_run_that_goes_on_draws_what_it_would_have(tmp_path):
    problem = draws(by_key)
    work = {"step_size": 1.0, "steps": 2, "batch_size": 2}
    whole = ct.run(problem, DATA, ct.fedavg(**work), rounds=4)
    ct.run(problem, DATA, ct.fedavg(**work), rounds=2, checkpoint_every=1, out=tmp_path / "run")
    rest = ct.run(problem, DATA, ct.fedavg(**work), rounds=4, checkpoint_every=1, out=tmp_path / "run", resume=True)
    jax.tree.map(np.testing.assert_array_equal, whole.model.state.clients, rest.model.state.clients)


def test_evaluations_draw_nothing_and_streams_do():
    train = with_keys(DATA, True).train
    client = train.client(0)
    assert client.full().key == () and client.hidden().full().key == ()
    client.fold(2, lambda carry, batch: carry if batch.key == () else pytest.fail("a key to score with"), 0)
    moments = [client.at(KEY, jnp.int32(meeting), 2, "cycle").now().key for meeting in range(2)]
    assert not np.array_equal(*map(jax.random.key_data, moments))
    drawn = [client.sample(KEY, 2).key, client.full(KEY).key, moments[0]]
    client.epoch(KEY, 2, lambda carry, batch: drawn.append(batch.key), None)
    assert all(not np.array_equal(*map(jax.random.key_data, (key, KEY))) for key in drawn[:3])  # it has drawn the rows
    assert len(drawn) > 3 and DATA.train.client(0).sample(KEY, 2).key == () and DATA.train.client(0).full(KEY).key == ()


def test_a_datacenter_draws_too_on_several_devices_and_sends_no_keys():
    rows = RANDOM.normal(size=(256, 256)).astype(np.float32)  # enough to be divided
    data = ct.federation(rows, np.arange(256) % 2, np.arange(256) % 4, classes=2, test=0)
    data = with_keys(replace(data, central=from_sizes(rows, np.arange(256) % 2, np.array([256]))), True)
    centre = divide_batches(data.central.client(0), mesh_of(2))
    drawn = jax.jit(lambda: (centre.sample(KEY, 256).key, centre.full(KEY).key))()
    assert [key.shape for key in drawn] == [(), ()]
    problem = ct.with_central_loss(ct.classification(data, ct.mlp(hidden=[4], dropout=0.5)))
    for recipe in (ct.example_transfer(), ct.one_way_transfer(), ct.parallel_training(central_batch_size=None)):
        message, upload = shapes_that_travel(problem, recipe.build(problem, 4), data.train, data.central)
        assert all(jnp.issubdtype(leaf.dtype, jnp.number) for leaf in jax.tree.leaves((message, upload)))


def test_a_tuned_model_that_predicts_is_the_one_that_was_scored():
    """Tuning for an evaluation draws too: predictions must come from the same draws."""
    inputs = RANDOM.normal(size=(12, 3)).astype(np.float32)
    data = ct.federation(inputs, np.arange(12) % 2, np.arange(12) % 3, classes=2, test=0.5)
    problem = ct.classification(data, ct.mlp(hidden=[8], dropout=0.5), split="output")
    result = ct.run(problem, data, ct.ffgg(tuner={"name": "gd", "steps": 3}), rounds=1)
    for client in range(3):
        rows = data.test.client(client).full()
        losses = problem.score(*result.model.parts(client), rows)["loss"]
        np.testing.assert_allclose(losses.mean(), result.clients["test.personal.loss"][client], rtol=1e-5)


class Net(nn.Module):
    @nn.compact
    def __call__(self, inputs, deterministic):
        return nn.Dense(3)(nn.Dropout(0.5)(nn.Dense(16)(inputs), deterministic=deterministic))


class Trained(Net):
    @nn.compact
    def __call__(self, inputs, train=False):
        return nn.Dense(3)(nn.Dropout(0.5)(nn.Dense(16)(inputs), deterministic=not train))


class Always(nn.Module):
    rate: float = 0.5

    @nn.compact
    def __call__(self, inputs):
        return nn.Dense(3)(nn.Dropout(self.rate, deterministic=False)(inputs))


class Deaf(Always):
    @nn.compact
    def __call__(self, inputs, train=False):  # which nobody tells the layer
        return Always(self.rate)(inputs)


def layers(key, dropout=None):
    dropout = dropout or eqx.nn.Dropout(0.5)
    return eqx.nn.Sequential([eqx.nn.Linear(4, 16, key=key), dropout, eqx.nn.Linear(16, 3, key=key)])


class NoKey(eqx.Module):
    inner: eqx.nn.Sequential

    def __call__(self, example):
        return self.inner(example)


@pytest.mark.parametrize("wrapped", [
    lambda: ct.from_flax(Net(), np.zeros((1, 4))), lambda: ct.from_flax(Trained(), np.zeros((1, 4))),
    lambda: ct.from_equinox(layers)], ids=["deterministic", "train", "equinox"])
def test_wrapped_modules_drop_while_they_train(wrapped):
    problem = wrapped()
    batch = Batch(np.ones((6, 4), np.float32), np.zeros(6, int), np.ones(6, np.float32))

    @jax.jit
    def everything(key, other):
        params = problem.init(KEY)
        outputs = problem.predict(*params, batch.inputs)
        return [problem.loss(*params, batch._replace(key=key)), problem.loss(*params, batch._replace(key=other)),
                problem.loss(*params, batch)], jnp.abs(outputs - outputs[:1]).max()

    losses, spread = everything(KEY, jax.random.key(1))
    assert len({float(loss) for loss in losses}) == 3 and problem.draws
    assert spread < 1e-5  # predictions for equal rows are equal


def test_layers_that_do_not_draw_need_no_key_and_those_that_do_are_refused_without():
    assert not ct.from_equinox(lambda key: NoKey(layers(key, eqx.nn.Dropout(0.5, inference=True)))).draws
    assert not ct.from_equinox(lambda key: NoKey(layers(key, eqx.nn.Dropout(0.0)))).draws
    with pytest.raises(InputError, match="draws at random, such as Dropout, and takes no key; let it be called as"):
        ct.from_equinox(lambda key: NoKey(layers(key)))
    for module in (Always(), Deaf()):
        with pytest.raises(InputError, match="draws at random when it predicts too, .* an argument `deterministic`"):
            ct.from_flax(module, np.zeros((1, 4)))
    assert not ct.from_flax(Always(rate=0.0), np.zeros((1, 4))).draws
    with pytest.raises(InputError, match="has no dropout; give them a dropout of 0"):
        ct.residual(DATA, shared_model=ct.mlp(dropout=0.1))
    with pytest.raises(InputError, match="dropout is 1"):
        ct.mlp(dropout=1.0)
