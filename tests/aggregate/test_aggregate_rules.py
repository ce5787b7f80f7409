"""Rules on uploads that are known by hand; which methods take which; what they may keep, report and ask for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.aggregate import RULES
from cantons.algorithm import ALGORITHMS
from cantons.protocol import Average, Averages, Report, StackRule, SumRule
from cantons.recipe import algorithm, rule

pytestmark = pytest.mark.usefixtures("float64")


def combine(name, values, weights, **options):
    """What a rule makes of these uploads, whichever kind it is."""
    built = RULES[name](**options).build()
    uploads = Average(jnp.asarray(values, float), jnp.asarray(weights, float))
    state = built.init(jnp.zeros(2))
    if isinstance(built, SumRule):
        summands = [built.lift(state, jax.tree.map(lambda leaf, row=row: leaf[row], uploads))
                    for row in np.flatnonzero(weights)]
        total = jax.tree.map(lambda *leaves: sum(leaves), *summands)
        return built.finish(jax.random.key(0), state, total, len(values))[0]
    return built.reduce(jax.random.key(0), state, uploads, jnp.arange(len(values)), len(values))[0]


VALUES, WEIGHTS = [[1.0, 0.0], [2.0, 6.0], [9.0, 3.0], [-50.0, 7.0]], [1, 2, 3, 0]  # the last did not arrive


@pytest.mark.parametrize("name, expected, weight", [
    ("mean", [4.0, 3.0], 3), ("weighted_mean", [32 / 6, 21 / 6], 6), ("median", [2.0, 3.0], 6)])
def test_rules_on_three_uploads_by_hand(name, expected, weight):
    found = combine(name, VALUES, WEIGHTS)
    np.testing.assert_allclose(found.value, expected, atol=1e-12)
    assert found.weight == weight


@pytest.mark.parametrize("name", sorted(RULES))
def test_clients_alike_are_their_own_aggregate_under_every_rule(name):
    options = {"radius": 10.0} if name == "norm_bound" else {}
    found = combine(name, [[1.5, -2.0]] * 5, [1, 4, 2, 2, 1], **options)
    np.testing.assert_allclose(found.value, [1.5, -2.0], atol=1e-12)


def test_a_median_withstands_liars_and_a_mean_does_not(least_squares, numbers):
    """Client 6 sends the largest of changes: the mean follows it, the median hardly moves."""

    @algorithm
    def lied_to(problem, population):
        built = ct.fedavg(step_size=0.05, batch_size=None).build(problem, population)

        def client_update(key, message, client, data):
            upload, client = built.client_update(key, message, client, data)
            lies = data.size == numbers.train.sizes[6]
            return upload._replace(change=jax.tree.map(lambda leaf: jnp.where(lies, 1e3, leaf), upload.change)), client

        return built._replace(client_update=client_update)

    def weights(recipe, aggregate=None):
        result = ct.run(least_squares, numbers, recipe, rounds=3, precision="float64", aggregate=aggregate)
        return np.abs(result.model.state.server.shared["layer0"]["weight"]).max()

    assert weights(lied_to()) > 100
    assert weights(lied_to(), ct.median()) < 2


def test_the_mean_by_choice_is_uniform_weighting_bit_for_bit(least_squares, numbers):
    by_rule = ct.run(least_squares, numbers, ct.fedavg(), rounds=4, aggregate=ct.mean())
    by_option = ct.run(least_squares, numbers, ct.fedavg(weighting="uniform"), rounds=4)
    jax.tree.map(np.testing.assert_array_equal, by_rule.model.state.server, by_option.model.state.server)


def test_naming_the_rule_a_method_has_anyway_changes_nothing(least_squares, numbers):
    named = ct.run(least_squares, numbers, ct.fedavg(), rounds=4, aggregate=ct.weighted_mean())
    plain = ct.run(least_squares, numbers, ct.fedavg(), rounds=4)
    jax.tree.map(np.testing.assert_array_equal, named.model.state, plain.model.state)
    assert named.summary["final"]["round"] == 4


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_method_takes_a_rule_or_says_why_not(name, numbers):
    """A method either says that its uploads are averages, or refuses in a sentence; none is left in between."""
    from cantons.study.resolve import choose_rule

    plain = ct.regression(numbers, ct.linear())
    joint = ct.residual(numbers, shared_features=[0, 1], private_features=[1, 2])
    problems = joint, plain, ct.with_central_loss(plain)
    for problem in problems:
        try:
            built = ALGORITHMS[name]().build(problem, 7)
            break
        except ct.InputError:
            continue
    else:
        pytest.skip(f"{name} is for contextual bandits, and has an aggregation of its own")
    if isinstance(built.aggregate, Averages) and not built.aggregate.only:
        assert choose_rule(name, built, ct.median()).aggregate.rule is not built.aggregate.rule
    else:
        with pytest.raises(ct.InputError, match=f"{name} (has an aggregation of its own|cannot aggregate by median)"):
            choose_rule(name, built, ct.median())


# What a rule may ask for


@rule
def noisy(*, each: float = 1.0) -> SumRule:
    """The sum over the expected cohort, plus a constant in every round: the shape of a private mean.

    each: what is added in a round.
    """

    def finish(key, state, total, expected):
        value = jax.tree.map(lambda leaf: leaf / expected + each, total.value)
        return Average(value, total.weight), state + 1, Report({"arrived": total.weight})

    return SumRule(lambda state, upload: Average(upload.value, jnp.ones(())), finish, init=lambda value: jnp.zeros(()),
                   reports=("arrived",), every_round=True, on_client=True)


@algorithm
def sums(problem, population):
    """Clients send 1, the server adds up what it gets."""
    from cantons.aggregate import mean_of_uploads

    base = ct.fedavg().build(problem, population)
    return base._replace(
        client_update=lambda key, message, client, data: (
            jax.tree.map(jnp.ones_like, message.shared), client),
        aggregate=mean_of_uploads(),
        server_update=lambda key, server, mean, central: server._replace(
            shared=jax.tree.map(jnp.add, server.shared, mean.value)))


def test_a_rule_may_finish_every_round_and_divide_by_the_expected_cohort(least_squares, numbers):
    """Two of every three rounds nobody is there; a cohort of four is expected where one comes."""
    there = np.zeros((3, 7), bool)
    there[0, 2] = True
    result = ct.run(least_squares, numbers, sums(), rounds=6, evaluate_every=3, precision="float64",
                    clock=ct.rounds(cohort=4, available=there), aggregate=noisy(each=0.5))
    begun = ct.run(least_squares, numbers, sums(), rounds=1, precision="float64").model.problem.init(
        jax.random.split(jax.random.key(0), 3)[0])[0]
    moved = jax.tree.map(lambda end, start: end - start, result.model.state.server.shared, begun)
    np.testing.assert_allclose(moved["layer0"]["weight"], 6 * 0.5 + 2 / 4, atol=1e-12)
    assert result.final["skipped_rounds"] == 0 and result.model.state.rule == 6
    assert result.final["rule.arrived"] == pytest.approx(1 / 3)  # of the last three rounds, one had somebody


def test_without_asking_a_round_in_which_nothing_arrives_changes_nothing(least_squares, numbers):
    there = np.zeros((3, 7), bool)
    there[0, 2] = True
    result = ct.run(least_squares, numbers, sums(), rounds=6, precision="float64",
                    clock=ct.rounds(cohort=4, available=there))
    assert result.final["skipped_rounds"] == 4


def test_what_is_lifted_on_the_client_is_what_travels(least_squares, numbers):
    plain, lifted = (ct.run(least_squares, numbers, sums(), rounds=1, aggregate=aggregate).summary
                     for aggregate in (None, noisy()))
    assert lifted["up_bytes_per_upload"] == plain["up_bytes_per_upload"] + 4  # the summand has a weight
    assert lifted["down_bytes_per_message"] == plain["down_bytes_per_message"] + 4  # and the rule's state travels down


@pytest.mark.parametrize("name", ["weighted_mean", "median"])
def test_a_rule_gives_the_same_on_every_layout_and_on_the_plain_engine(name, labels):
    problem = ct.logistic(labels, split="*/bias")
    first, *others = [ct.run(problem, labels, ct.fedavg(), rounds=3, cohort=5, precision="float64",
                             aggregate=RULES[name](), engine=engine).model.state
                      for engine in (ct.Plain(compile=True), ct.Local(mode="scan", devices=1),
                                     ct.Local(group=3, devices=2), ct.Local(mode="vmap"))]
    for state in others:
        jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12), first, state)


def test_late_uploads_are_aggregated_by_the_rule_that_was_chosen(numbers):
    """Under the online clock a median of points stays within the clients' own points."""
    problem = ct.residual(numbers, shared_features=[0, 1], private_features=[1, 2])
    clock = ct.online(uplink=[0, 2, 1, 0, 3, 1, 2], sync=2)
    median, mean = (ct.run(problem, numbers, ct.fedomd(step_size=0.05), rounds=8, clock=clock, precision="float64",
                           aggregate=aggregate).model.state.server.shared for aggregate in (ct.median(), None))
    assert all((left != right).any() for left, right in
               zip(jax.tree.leaves(median), jax.tree.leaves(mean), strict=True))


@rule
def stacked_mean() -> StackRule:
    """The weighted mean, from all uploads at once; it counts the rounds, and reports how many came before."""

    def reduce(key, rounds, uploads, ids, expected):
        total = uploads.weight.sum()
        mean = jax.tree.map(lambda rows: jnp.tensordot(uploads.weight, rows, 1) / total, uploads.value)
        return Average(mean, total), rounds + 1, Report({"before": rounds})

    return StackRule(reduce, init=lambda value: jnp.zeros(()), reports=("before",))


def test_a_client_drawn_twice_counts_twice_in_a_stack_too(least_squares, numbers):
    clock = ct.rounds(cohort=6, replace=True)
    added, stacked = (ct.run(least_squares, numbers, ct.fedavg(), rounds=5, clock=clock, precision="float64",
                             aggregate=aggregate).model.state.server.shared
                      for aggregate in (ct.weighted_mean(), stacked_mean()))
    jax.tree.map(lambda left, right: np.testing.assert_allclose(left, right, rtol=1e-12), added, stacked)


def test_reports_are_means_over_the_rounds_since_the_evaluation_before(least_squares, numbers):
    result = ct.run(least_squares, numbers, ct.fedavg(), rounds=7, evaluate_every=3, aggregate=stacked_mean())
    assert [row.get("rule.before") for row in result.history] == [None, *map(pytest.approx, (1.0, 4.0, 6.0))]


def test_runs_that_are_one_program_have_the_rule_that_was_chosen(least_squares, numbers):
    recipes = [ct.fedavg(step_size=size) for size in (0.02, 0.05)]
    together = ct.rollouts(least_squares, numbers, recipes, rounds=4, seed=[0, 0], aggregate=ct.median())
    for history, recipe in zip(together, recipes, strict=True):
        alone = ct.run(least_squares, numbers, recipe, rounds=4, aggregate=ct.median()).final
        assert history[-1]["train.shared.loss.mean"] == pytest.approx(alone["train.shared.loss.mean"], rel=1e-5)
