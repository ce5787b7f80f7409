"""Check an algorithm against everything that the contract asks of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax

from cantons.checks import cohort, engines, newcomers, purity, saving, secrecy, stream, structure
from cantons.checks.calls import CallError, describe_error
from cantons.checks.case import Case, fitting_case
from cantons.checks.finding import Failed, Finding, Findings, Skipped
from cantons.errors import InputError
from cantons.protocol import Recipe
from cantons.study.registry import make_algorithm

Check = Callable[[Case], None]

# Without these nothing can run: the first that fails ends it.
STRUCTURE: tuple[Check, ...] = (
    structure.the_server_state_has_a_field_shared,
    structure.aggregate_is_a_sum_a_stack_or_averages,
    structure.a_client_keeps_the_structure_and_the_types_of_its_state,
    structure.the_server_keeps_the_structure_and_the_types_of_its_state,
    structure.the_model_is_a_shared_and_a_private_part,
)
COMMON: tuple[Check, ...] = (
    *STRUCTURE,
    purity.functions_leave_their_arguments_alone,
    purity.an_algorithm_built_twice_does_the_same,
    purity.the_same_call_gives_the_same_bits,
    saving.a_state_saved_and_loaded_goes_on_to_the_same_bits,
)
CHECKS: dict[str, tuple[Check, ...]] = {
    "rounds": (
        *COMMON,
        cohort.a_client_sends_the_same_whoever_else_is_there,
        cohort.the_order_of_a_cohort_is_irrelevant,
        cohort.absent_clients_keep_their_state_bit_for_bit,
        secrecy.what_an_absent_client_keeps_private_reaches_nobody,
        secrecy.the_message_to_a_client_does_not_change_with_its_private_part,
        newcomers.a_new_client_fits_its_private_part_before_it_predicts,
        engines.blocks_of_any_length_compile_nothing_new,
        engines.every_way_to_run_a_round_gives_the_same_answer,
    ),
    "stream": (
        *COMMON,
        stream.a_client_that_is_always_silent_never_learns,
        stream.a_step_is_charged_before_it_is_learned_from,
        engines.blocks_of_any_length_are_one_program_and_one_path,
        engines.every_way_to_run_a_step_gives_the_same_answer,
    ),
}


def check(algorithm: Recipe | Callable[..., Recipe] | str, **options: Any) -> Findings:
    """Hold an algorithm against the contract: a recipe, its maker, or a name such as "fedavg" or "votes:sign_sgd".

    It runs on a tiny example that it can work with, under the online clock if it learns from a stream. Print what is
    returned, or assert that it has `passed`.
    """
    return examine(chosen(algorithm, options))


def examine(recipe: Recipe, begin: Callable[[str], None] = lambda title: None,
            tell: Callable[[Finding], None] = lambda finding: None) -> Findings:
    """Check a recipe; `begin` is told on what, and `tell` each finding as soon as there is one."""
    try:
        example, case = fitting_case(recipe)
    except InputError:  # no example suits it
        raise
    except Exception as error:
        said = str(error) if isinstance(error, Failed) else describe_error(
            "its builder", error, getattr(recipe.build, "func", None))
        broken = Findings(recipe.name, "no example", [Finding("it can be built", "failed", said)])
        tell(broken.findings[0])
        return broken
    findings = Findings(recipe.name, example.words, [])
    begin(findings.title)
    for finding in all_findings(case):
        findings.findings.append(finding)
        tell(finding)
    return findings


def all_findings(case: Case) -> Iterator[Finding]:
    """One finding for each check, in order."""
    broken = False
    for one in CHECKS["stream" if case.clocks else "rounds"]:
        if broken:
            yield Finding(sentence_of(one), "skipped", "nothing can run until the failure above is mended")
            continue
        finding = find(one, case)
        broken = finding.status == "failed" and one in STRUCTURE
        yield finding


def find(one: Check, case: Case) -> Finding:
    """What one check finds; equalities are mathematics, so look at sixteen digits of them."""
    name = sentence_of(one)
    try:
        with jax.enable_x64(True):
            one(case)
    except Failed as failure:
        return Finding(name, "failed", str(failure))
    except Skipped as reason:
        return Finding(name, "skipped", str(reason))
    except (CallError, InputError) as error:
        return Finding(name, "failed", str(error))
    except Exception as error:  # what an engine makes of values that nobody foresaw
        return Finding(name, "failed", describe_error("an engine", error))
    return Finding(name, "ok")


def sentence_of(one: Check) -> str:
    """A check's name is a sentence.

    >>> sentence_of(purity.the_same_call_gives_the_same_bits)
    'the same call gives the same bits'
    """
    return one.__name__.replace("_", " ")


def chosen(algorithm: Recipe | Callable[..., Recipe] | str, options: dict[str, Any]) -> Recipe:
    """The recipe that is meant, with these options."""
    if isinstance(algorithm, str):
        return make_algorithm({"name": algorithm, **options})
    if isinstance(algorithm, Recipe):
        if not options:
            return algorithm
        if algorithm.again is None:
            raise InputError(f"{algorithm.name} has its options already; give them where it is made.")
        return algorithm.again(**{**algorithm.options, **options})
    recipe = algorithm(**options) if callable(algorithm) else algorithm
    if not isinstance(recipe, Recipe):
        raise InputError(f"check needs an algorithm and got a {type(recipe).__name__}; give a recipe such as "
                         "sign_sgd(step_size=0.1), made by a function decorated with @cantons.recipe.algorithm, or a "
                         "name: \"votes:sign_sgd\".")
    return recipe
