"""Step sizes over rounds, by hand, and as the clients are told them."""

import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.algorithm.parts.schedule import as_schedule, constant, cosine, linear, step_decay
from cantons.errors import InputError

pytestmark = pytest.mark.usefixtures("float64")


def values(schedule, rounds):
    return np.array([schedule(jnp.int32(number)) for number in range(rounds)])


def test_a_constant_is_constant():
    np.testing.assert_array_equal(values(constant(0.3), 4), [0.3] * 4)


def test_linear_falls_from_the_peak_to_the_end_and_stays_there():
    np.testing.assert_allclose(values(linear(0.8, rounds=4), 6), [0.8, 0.6, 0.4, 0.2, 0.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(values(linear(0.8, rounds=4, end=0.4), 6), [0.8, 0.7, 0.6, 0.5, 0.4, 0.4], atol=1e-15)


def test_a_warm_up_climbs_to_the_peak_in_equal_steps_before_the_fall():
    np.testing.assert_allclose(values(linear(0.6, rounds=5, warmup=3), 7), [0.2, 0.4, 0.6, 0.6, 0.3, 0.0, 0.0],
                               atol=1e-15)


def test_cosine_climbs_and_ends_as_linear_does_and_meets_it_half_way():
    wave, line = (values(make(0.6, rounds=7, warmup=3, end=0.2), 10) for make in (cosine, linear))
    np.testing.assert_allclose(wave[[0, 1, 2, 3, 5, 7, 8, 9]], line[[0, 1, 2, 3, 5, 7, 8, 9]], atol=1e-15)
    assert wave[4] > line[4] and wave[6] < line[6]
    np.testing.assert_allclose(wave[4], 0.2 + 0.4 * (1 + np.cos(np.pi / 4)) / 2, atol=1e-15)


def test_step_decay_multiplies_after_every_so_many_rounds():
    np.testing.assert_allclose(values(step_decay(0.8, factor=0.5, every=2), 6), [0.8, 0.8, 0.4, 0.4, 0.2, 0.2],
                               atol=1e-15)


@pytest.mark.parametrize("step_size, expected", [
    (0.25, [0.25, 0.25, 0.25]),
    ({"name": "constant", "value": 0.25}, [0.25, 0.25, 0.25]),
    ({"name": "linear", "peak": 0.3, "rounds": 3}, [0.3, 0.2, 0.1]),
    ({"name": "step_decay", "start": 0.4, "factor": 0.5, "every": 1}, [0.4, 0.2, 0.1]),
    (lambda number: 0.1 / (number + 1), [0.1, 0.05, 0.1 / 3]),
], ids=["a number", "constant", "linear", "step decay", "a function"])
def test_clients_are_told_the_step_size_of_the_round(step_size, expected, plain_loop, least_squares, numbers):
    loop = plain_loop(least_squares, numbers, ct.fedavg(step_size=step_size, steps=1, batch_size=None))
    told = [float(loop.play(1, cohort=(0,)).message.step_size) for _ in range(3)]
    np.testing.assert_allclose(told, expected, atol=1e-15)


def test_clients_step_by_what_they_are_told(plain_loop, least_squares, numbers, quadratics):
    recipe = ct.fedavg(step_size={"name": "linear", "peak": 0.12, "rounds": 3}, steps=1, batch_size=None,
                       weighting="uniform")
    weight = np.zeros(3)
    for step_size in (0.12, 0.08, 0.04):
        weight = weight - step_size * quadratics.gradients(weight).mean(axis=0)
    np.testing.assert_allclose(plain_loop(least_squares, numbers, recipe).play(3).weight, weight, atol=1e-12)


@pytest.mark.parametrize("step_size, part", [
    ({"name": "linear", "peak": 0.1}, "needs the option rounds"),
    ({"name": "linear", "peak": 0.1, "round": 3}, "Did you mean 'rounds'"),
    ({"name": "linear", "peak": 0.1, "rounds": 3, "warmup": 3}, "rounds is 3; give 4 or more"),
    ({"name": "step_decay", "start": 0.1, "factor": 0.0, "every": 1}, "factor is 0.0"),
    ({"peak": 0.1}, "step_size has no name; say which schedule it is: constant,"),
    (-0.1, "step_size is -0.1"),
])
def test_a_schedule_that_makes_no_sense_is_refused(step_size, part):
    with pytest.raises(InputError, match=part):
        as_schedule(step_size)
