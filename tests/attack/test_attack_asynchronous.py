"""Liars under the asynchronous clock: each event has the uploads of few, and a liar may be slow or silent."""

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.attack import delay, inner_product, not_finite, sign_flip, silence
from cantons.clock.events import events_of, read_events
from cantons.engine.init import seed_keys

LIARS = np.array([False, True, False, False, True, False, False])
NAMES = ("client1", "client4")
UNEVEN = ct.asynchronous(durations={"name": "log_normal", "jitter": 0.5})


@pytest.fixture(scope="module")
def play(numbers, least_squares):
    """`play(attack, ...)`: a few events."""

    def played(attack=None, rounds=12, clock=UNEVEN, clients=NAMES, **options):
        liars = None if attack is None else ct.byzantine(attack=attack, clients=clients)
        return ct.run(least_squares, numbers, ct.fedavg(step_size=0.05, steps=1, batch_size=None), rounds=rounds,
                      clock=clock, byzantine=liars, precision="float64", engine=ct.Local(devices=1),
                      evaluate_every=rounds, **options)

    return played


def weights(result):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(result.model.state.server.shared)])


def test_the_server_stays_where_it_is_when_a_silent_liar_answers(play, tmp_path):
    silent, lost = play(silence(), out=tmp_path / "run"), play(not_finite())
    np.testing.assert_array_equal(weights(silent), weights(lost))
    events = read_events(str(tmp_path / "run" / "events.npz"), 7, None)
    lies = LIARS[events.client[:, 0]]
    assert 0 < lies.sum() < 12
    assert silent.final["uploads"] == 12 - lies.sum() and silent.final["skipped_rounds"] == lies.sum()
    assert silent.final["clock.delay.mean"] == events.delays[~lies].mean()


def test_one_who_flips_its_sign_moves_the_server_the_other_way(play, tmp_path):
    honest, start = (play(rounds=1, out=tmp_path / "run"), play(rounds=1, clock=ct.asynchronous(), clients=()))
    first = int(read_events(str(tmp_path / "run" / "events.npz"), 7, None).client[0, 0])
    lying = play(sign_flip(), rounds=1, clients=(f"client{first}",))
    zero = np.zeros_like(weights(start))  # where linear models begin
    np.testing.assert_allclose(weights(lying) - zero, -(weights(honest) - zero), atol=1e-15)
    assert np.abs(weights(lying)).max() > 1e-3


def test_slow_liars_make_the_events_of_clients_with_such_durations(play, tmp_path):
    play(delay(factor=3.0), clock=ct.asynchronous(), out=tmp_path / "run")
    found = read_events(str(tmp_path / "run" / "events.npz"), 7, None)
    slow = ct.asynchronous(durations=np.where(LIARS, 3.0, 1.0)).build(7)
    for one, other in zip(found, events_of(slow, seed_keys(0)[1], 7, 12), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(found.client, events_of(ct.asynchronous().build(7), seed_keys(0)[1], 7, 12).client)


@pytest.mark.parametrize("attack, clock, words", [
    (delay(), ct.rounds(), "use the clock asynchronous"), (delay(), ct.online(), "use the clock asynchronous"),
    (inner_product(), UNEVEN, "use a buffer of 2 or more")])
def test_what_a_clock_does_not_let_liars_do_is_refused(play, attack, clock, words):
    with pytest.raises(ct.InputError, match=words):
        play(attack, clock=clock)


def test_liars_see_the_uploads_of_their_event(play):
    """With a buffer of all clients an event is a round."""
    everybody = ct.asynchronous(buffer=7, next="same")
    found = [weights(play(inner_product(epsilon=5.0), rounds=3, clock=clock)) for clock in (everybody, ct.rounds())]
    np.testing.assert_allclose(*found, atol=1e-14)
