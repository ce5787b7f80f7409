"""What goes wrong when algorithms are written for the first time is named, with what to change."""

import re

import pytest
import wrong_algorithms as wrong
from click.testing import CliRunner

import cantons as ct
from cantons.checks.case import fitting_case
from cantons.checks.contract import all_findings, find, sentence_of
from cantons.checks.newcomers import a_new_client_fits_its_private_part_before_it_predicts as newcomers_are_fitted
from cantons.checks.purity import an_algorithm_built_twice_does_the_same as built_twice
from cantons.checks.purity import functions_leave_their_arguments_alone as arguments_untouched
from cantons.checks.secrecy import the_message_to_a_client_does_not_change_with_its_private_part as same_message
from cantons.checks.stream import a_client_that_is_always_silent_never_learns as silent
from cantons.checks.structure import (
    a_client_keeps_the_structure_and_the_types_of_its_state as client_structure,
)
from cantons.checks.structure import (
    aggregate_is_a_sum_a_stack_or_averages as aggregate_kind,
)
from cantons.checks.structure import (
    the_model_is_a_shared_and_a_private_part as model_parts,
)
from cantons.checks.structure import (
    the_server_keeps_the_structure_and_the_types_of_its_state as server_structure,
)
from cantons.checks.structure import (
    the_server_state_has_a_field_shared as field_shared,
)
from cantons.cli.main import cantons

HERE = r"tests/checks/wrong_algorithms\.py:\d+"

EXPECTED = {
    "unfitted": (newcomers_are_fitted, "never acted predicts with the private part that all clients start with.*fit"),
    "badly_fitted": (newcomers_are_fitted, r"has the loss .* all start with has .*; in `model`, fit"),
    "size_is_a_number": (client_structure, f"`client_update` raised AttributeError at {HERE}: 'int' object has no"),
    "loops_over_its_size": (client_structure, f"`client_update` raised .* at {HERE}: .*"),
    "real_in_a_whole": (client_structure, r"its \.visits is int32 \(\) there and float\d+ \(\) here; return the same"),
    "other_structure": (client_structure, r"it has \.extra; return the same fields.*clients of unequal size"),
    "other_kind": (client_structure, r"it lacks \.private.* and has \['private'\].*; return the same fields"),
    "adopts_another": (client_structure, "`adopt` should return a state like the one of `init_client`, and it lacks"),
    "no_pair": (client_structure, "`client_update` returns a dict; return a pair"),
    "growing": (client_structure, r"its \.visits is int32 \(\) there and int32 \(3,\) here"),
    "no_shared": (field_shared, "returns a NoShared without a field `shared`; return a NamedTuple"),
    "shared_in_a_dict": (field_shared, "returns a dict without a field `shared`; return a NamedTuple"),
    "server_loses_its_state": (server_structure, r"it lacks \.shared\['layer0'\].* and has \['layer0'\]"),
    "rule_as_aggregate": (aggregate_kind, r"`aggregate` is mean, .*mean_of_uploads\(\)"),
    "function_as_aggregate": (aggregate_kind, "neither a Sum nor a Stack nor Averages"),
    "unbuilt_rule": (aggregate_kind, r"rule in `aggregate` is a Recipe.*\.build\(\)"),
    "swapped_model": (model_parts, r"the shared part that `model` returns .*return \(shared, private\)"),
    "if_on_a_value": (client_structure, f"`client_update` raised TracerBoolConversionError at {HERE}.*jax.lax.cond"),
    "wrong_shapes": (server_structure, f"`server_update` raised TypeError at {HERE}"),
    "too_few_arguments": (client_structure, f"`broadcast` raised TypeError at {HERE}.*takes 2 positional arguments"),
    "counts_calls": (built_twice, "`client_update` does something else when it is called again"),
    "draws_outside": (built_twice, "`client_update` does something else .*numpy.random"),
    "changes_its_argument": (arguments_untouched, "`client_update` changes what it is given; make a new value"),
    "asks_with_its_private_part": (same_message, "what is sent down changes with a client's private part.*`request`"),
    "silent_clients_learn": (silent, "never met an example has changed.*`receive`"),
}


@pytest.mark.parametrize("mistake", sorted(EXPECTED))
def test_a_mistake_is_named_with_what_to_change(mistake):
    check, sentence = EXPECTED[mistake]
    found = find(check, fitting_case(wrong.broken(mistake=mistake))[1])
    assert found.status == "failed"
    assert re.search(sentence, found.sentence), found.sentence
    assert "\n" not in found.sentence and found.sentence.endswith(".")


def test_every_mistake_has_its_sentence():
    assert {*EXPECTED, "refuses_everything"} == wrong.MISTAKES.keys()


@pytest.mark.parametrize("mistake", ["", *wrong.NO_MISTAKES])
def test_without_a_mistake_every_check_passes(mistake):
    found = ct.check(wrong.broken, mistake=mistake)
    assert found.passed, str(found)
    assert {finding.status for finding in found.findings} == {"ok"}
    assert str(found).endswith(f"all {len(found.findings)} checks passed")


def test_where_nothing_can_run_the_first_failure_is_told_and_the_rest_is_skipped():
    found = list(all_findings(fitting_case(wrong.broken(mistake="no_shared"))[1]))
    assert found[0].status == "failed" and {finding.status for finding in found[1:]} == {"skipped"}


@pytest.mark.parametrize("recipe, sentence", [
    (wrong.unbuildable, f"its builder raised AttributeError at {HERE}"),
    (wrong.returns_nothing, "its builder returns a NoneType; return a cantons.Algorithm"),
])
def test_a_builder_that_breaks_is_a_failure_with_its_line(recipe, sentence):
    found = ct.check(recipe)
    assert not found.passed
    assert re.search(sentence, found.failures[0].sentence)


def test_an_algorithm_that_no_example_suits_is_refused_in_its_own_words():
    with pytest.raises(ct.InputError, match="give it graphs"):
        ct.check(wrong.broken, mistake="refuses_everything")


@pytest.mark.parametrize("given, sentence", [
    ("fedavgg", "Did you mean 'fedavg'"),
    (7, "check needs an algorithm and got a int"),
    (lambda: 7, "decorated with @cantons.recipe.algorithm"),
])
def test_what_is_no_algorithm_is_refused(given, sentence):
    with pytest.raises(ct.InputError, match=sentence):
        ct.check(given)


def test_options_are_chosen_by_name_by_recipe_and_by_maker():
    from cantons.checks.contract import chosen

    for given in ("fedavg", ct.fedavg, ct.fedavg(epochs=3)):
        assert chosen(given, {"step_size": 0.5}).options["step_size"] == 0.5
    assert chosen(ct.fedavg(epochs=3), {"step_size": 0.5}).options["epochs"] == 3
    with pytest.raises(ct.InputError, match="Did you mean 'step_size'"):
        chosen("fedavg", {"stepsize": 0.5})


def test_the_command_prints_a_line_for_each_check_and_fails_if_one_does(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    done = CliRunner().invoke(cantons, ["check", "wrong_algorithms:broken", "--set", "mistake=no_shared"])
    assert done.exit_code == 1
    title, first, *others, verdict = done.output.splitlines()
    assert title.startswith("wrong_algorithms:broken on a network")
    assert first.startswith(f"failed   {sentence_of(field_shared)}: `init_server` returns a NoShared")
    assert all(line.startswith("skipped  ") for line in others)
    assert verdict == f"0 of {len(others) + 1} checks passed, 1 failed, {len(others)} skipped"
    mistaken = CliRunner().invoke(cantons, ["check", "wrong_algorithms:broken", "--set", "mistakes=no_shared"])
    assert mistaken.exit_code == 1 and "Did you mean" in mistaken.output and "Traceback" not in mistaken.output


def test_compilations_are_counted(compilations):
    import jax
    import jax.numpy as jnp

    with compilations() as found:
        jax.jit(lambda number: number + 1)(jnp.zeros(()))
    assert len(found) >= 1
