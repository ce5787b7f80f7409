"""Images change at random while a network is trained, each in its own way, and never when it predicts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.models import Model
from cantons.models.augment import AUGMENTATIONS, augmented, crop, flip
from cantons.problem import Shapes
from cantons.protocol import Batch
from cantons.study.whole_parts import whole_problem

KEY = jax.random.key(0)
RANDOM = np.random.default_rng(0)
GREY, COLOURED = (RANDOM.random((400, *shape)).astype(np.float32) + 1 for shape in ((5, 6), (5, 6, 3)))  # no pixel is 0
BOTH = pytest.mark.parametrize("images", [GREY, COLOURED], ids=["grey", "coloured"])


@BOTH
def test_a_flip_turns_half_of_the_images_and_keeps_the_others(images):
    flipped = np.asarray(jax.jit(flip())(KEY, images))
    turned = (flipped == images[:, :, ::-1]).reshape(len(images), -1).all(1)
    kept = (flipped == images).reshape(len(images), -1).all(1)
    assert (turned ^ kept).all() and 0.4 < turned.mean() < 0.6


@BOTH
def test_a_crop_is_the_image_moved_by_up_to_the_padding_and_zeros_where_it_is_gone(images):
    cropped = np.asarray(jax.jit(crop(padding=2))(KEY, images))
    widths = [(0, 0), (2, 2), (2, 2), *[(0, 0)] * (images.ndim - 3)]
    bordered = np.pad(images, widths)
    places = [(i, j) for i in range(5) for j in range(5)]
    same = np.array([(cropped == bordered[:, i : i + 5, j : j + 6]).reshape(len(images), -1).all(1) for i, j in places])
    assert (same.sum(0) == 1).all()  # each is one of the 25, and which it is can be told
    assert (same.sum(1) > 0).all()  # and each of them comes up
    assert abs(same.mean(1) - 1 / 25).max() < 0.04


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_a_key_repeats_what_it_drew_and_another_draws_anew(name):
    change = jax.jit(AUGMENTATIONS[name]())
    images = RANDOM.random((50, 12, 12)).astype(np.float32)
    np.testing.assert_array_equal(change(KEY, images), change(KEY, images))
    assert (change(KEY, images) != change(jax.random.key(1), images)).any()


def pixels(train=None):
    """A network that answers with its inputs, so that one sees what it was trained on."""
    return Model(lambda key: jnp.zeros(1), lambda params, inputs: inputs, train=train)


def test_changes_follow_each_other_each_with_a_key_of_its_own():
    add, double = (lambda key, images: images + 1), (lambda key, images: 2 * images)
    for changes, expected in (([add, double], 2 * (GREY + 1)), ([double, add], 2 * GREY + 1), (add, GREY + 1)):
        np.testing.assert_array_equal(augmented(pixels(), changes, (5, 6)).train(None, GREY, KEY), expected)
    seen = []
    draw = [lambda key, images: seen.append(key) or images] * 2
    network = pixels(train=lambda params, inputs, key: seen.append(key) or inputs)
    train = augmented(network, draw, (5, 6)).train
    seen.clear()
    train(None, GREY, KEY)
    assert len({tuple(jax.random.key_data(key).tolist()) for key in [KEY, *seen]}) == 4  # dropout has its own, too


@pytest.mark.parametrize("none", [None, []])
def test_without_augmentation_the_network_is_as_it_was(none):
    network = pixels()
    assert augmented(network, none, (5, 6)) is network
    assert not ct.classification(Shapes((6, 6), 3), ct.cnn(channels=[2], dense=4), augment=none).draws


@pytest.mark.parametrize("make", [ct.classification, ct.regression])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_problems_change_what_they_train_on_and_neither_scores_nor_predictions(make, dropout):
    shapes = Shapes((12, 12), 3 if make is ct.classification else None)
    model = ct.cnn(channels=[2], dense=8, dropout=dropout)
    problem, plain = make(shapes, model, augment=["crop", "flip"]), make(shapes, model)
    assert problem.draws and problem.spec == {**plain.spec, "augment": ["crop", "flip"]}
    batch = Batch(RANDOM.random((8, 12, 12)).astype(np.float32), RANDOM.integers(0, 3, 8), np.ones(8, np.float32))
    params = problem.init(KEY)
    loss = jax.jit(problem.loss)
    one, again, other = (loss(*params, batch._replace(key=key)) for key in (KEY, KEY, jax.random.key(1)))
    assert one == again != other
    assert loss(*params, batch) == jax.jit(plain.loss)(*params, batch)
    for ours, theirs in ((problem.predict(*params, batch.inputs), plain.predict(*params, batch.inputs)), *zip(
            *(each.score(*params, batch._replace(key=KEY)).values() for each in (problem, plain)), strict=True)):
        np.testing.assert_array_equal(ours, theirs)


def test_what_a_symmetric_image_teaches_does_not_depend_on_flips():
    """Images that look the same both ways train to the same bits, if the change is theirs alone."""
    images = RANDOM.random((30, 6, 6)).astype(np.float32)
    data = ct.federation(images + images[:, :, ::-1], np.arange(30) % 2, np.arange(30) % 3, classes=2, test=0.2)
    models = [ct.run(ct.classification(data, ct.cnn(channels=[2], dense=4), augment=augment, split="output"), data,
                     ct.ffgg(step_size=0.1, tuner="gd"), rounds=2, progress=False).model.state
              for augment in (None, "flip")]
    jax.tree.map(np.testing.assert_array_equal, models[0].server.shared, models[1].server.shared)


def test_two_devices_draw_what_one_draws():
    images = RANDOM.random((40, 6, 6)).astype(np.float32)
    data = ct.federation(images, np.arange(40) % 2, np.arange(40) % 4, classes=2, test=0.2)
    problem = ct.classification(data, ct.cnn(channels=[2], dense=4), augment=[{"name": "crop", "padding": 2}, "flip"])
    one, two = (ct.run(problem, data, ct.fedavg(step_size=0.1, batch_size=4), rounds=2, progress=False,
                       engine=ct.Local(devices=devices)).model.state.server.shared for devices in (1, 2))
    jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, rtol=2e-5, atol=1e-6), one, two)


@pytest.mark.parametrize(("augment", "sentence"), [
    ("flop", "unknown augmentation 'flop'. Did you mean 'flip'"),
    (["flip", "cropp"], "unknown augmentation 'cropp'. Did you mean 'crop'"),
    ({"name": "crop", "pad": 1}, "unknown option of crop 'pad'. Did you mean 'padding'"),
    ({"name": "crop", "padding": 0}, "padding is 0; give 1 or more"),
    ({"padding": 2}, "augment has no name; say which augmentation it is"),
    ({"name": "crop", "padding": 6}, "crop has a padding of 6, and images are 6 x 6: nothing might be left of one"),
    (3, "augment is 3; give an augmentation: one of 'crop', 'flip', or a list of these, or none"),
    (["flip", 3], r"augment\[1\] is 3; give an augmentation: one of 'crop', 'flip'\."),
    (lambda key, images: images[:, 1:], r"makes float32\[2, 5, 6\] from float32\[2, 6, 6\]; give one that keeps"),
    (lambda key, images: images[:1], r"makes float32\[1, 6, 6\] from float32\[2, 6, 6\]; give one that keeps"),
    (lambda key, images: images.astype(int), r"makes int32\[2, 6, 6\] from float32\[2, 6, 6\]; give one that keeps"),
    (lambda key, images: (images, images), "makes a tuple from float32"),
    (lambda images: images, r"cannot change float32\[2, 6, 6\] \(TypeError: .*\); it takes \(key, images\)"),
    (lambda key, images: images[:, :, :, ::-1], r"cannot change float32\[2, 6, 6\] \(IndexError: .*\); it takes"),
    (lambda key, images: np.asarray(images), r"cannot change float32\[2, 6, 6\] \(TracerArrayConversionError: "),
], ids=lambda value: getattr(value, "__name__", str(value)))
def test_what_is_no_augmentation_is_refused(augment, sentence):
    with pytest.raises(ct.InputError, match=sentence):
        ct.classification(Shapes((6, 6), 3), ct.cnn(channels=[2], dense=4), augment=augment)


def test_rows_that_are_no_images_are_refused():
    with pytest.raises(ct.InputError, match=r"augmentation is for images .*, and an input has shape \(36,\)"):
        ct.classification(Shapes((36,), 3), ct.mlp(), augment="flip")


def test_a_function_of_ones_own_augments_and_leaves_no_spec():
    problem = ct.classification(Shapes((6, 6), 3), ct.cnn(channels=[2], dense=4), augment=[flip(), "crop"])
    assert problem.draws and problem.spec is None


def test_a_study_file_names_augmentations_and_a_folder_is_read_back(tmp_path):
    images = RANDOM.random((40, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "images.npz", x=images, y=np.arange(40) % 2, user=np.arange(40) % 4)
    (tmp_path / "study.toml").write_text("""
rounds = 2
data = { name = "npz", path = "images.npz", client = "user" }
algorithm = "fedavg"

[problem]
name = "classification"
model = { name = "cnn", channels = [2], dense = 4 }
augment = [{ name = "crop", padding = 2 }, "flip"]
""")
    study = ct.read_study(tmp_path / "study.toml")
    problem, data, *_ = study.parts()
    assert problem.spec["augment"] == [{"name": "crop", "padding": 2}, "flip"]
    result = ct.run(problem, data, ct.fedavg(step_size=0.1), rounds=2, out=tmp_path / "run", progress=False)
    loaded = ct.load(tmp_path / "run")
    assert loaded.problem.spec == whole_problem(problem.spec) and loaded.problem.draws
    np.testing.assert_array_equal(loaded.predict(images[:5]), result.predict(images[:5]))
    changed = ct.read_study(tmp_path / "study.toml", {"problem.augment": "flip"}).parts()[0]
    assert changed.spec["augment"] == "flip"
    deeper = ct.read_study(tmp_path / "study.toml", {"problem.augment": "crop", "problem.augment.padding": 3})
    assert deeper.parts()[0].spec["augment"] == {"name": "crop", "padding": 3}
    without = ct.read_study(tmp_path / "study.toml", {"problem.augment": "none"}).parts()[0]
    assert "augment" not in without.spec and not without.draws
