"""The rounds clock: a cohort hears, acts and is counted; everybody else sleeps."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from cantons.errors import InputError, amount
from cantons.protocol import Array, Clock, Groups, Key, Plan
from cantons.ranges import Count, check
from cantons.recipe import clock
from cantons.shuffle import permutation


@clock
def rounds(population: int, groups: Groups | None = None, *, cohort: Count | Mapping[str, Count] | None = None,
           replace: bool = False, available: np.ndarray | str | None = None) -> Clock:
    """Draw `cohort` clients per round, uniformly without (or with) replacement; None takes all of them.

    cohort: clients per round; none takes all of them. Where clients are of several groups, {"phones": 10, "cars": 5}
        draws so many of each.
    replace: draw with replacement: a client drawn twice works once and counts twice.
    available: a trace of who can be drawn: a boolean array [rounds, clients], or an npz file with one named
        `available`; row t (repeated from the start when it ends) is for round t. A round with fewer available clients
        than the cohort takes all of them.
    """
    if isinstance(cohort, Mapping):
        if replace or available is not None:
            raise InputError("a cohort of each group is drawn without replacement, from all of the group; leave "
                             "replace and available out, or give one number as cohort.")
        return _cohorts_of_groups(population, groups, cohort)
    if cohort is None:
        cohort = population
    if cohort > population and not replace:
        raise InputError(f"cohort is {cohort} but there are only {amount(population, 'client')}; give at "
                         f"most {population}.")
    if available is not None:
        if replace:
            raise InputError("an availability trace is drawn from without replacement; set replace = false.")
        trace = read_trace("available", available, population)
        return Clock(cohort, False, trace, _sample_available(population, cohort), actors_hear=True)
    if replace:
        return Clock(cohort, False, (), _sample_with_replacement(population, cohort), repeats=True, actors_hear=True)
    if cohort == population:
        return Clock(cohort, True, (), lambda arrays, key, round: _cohort_plan(jnp.arange(population), population),
                     actors_hear=True)

    def sample(arrays: tuple, key: Key, round: Array) -> Plan:
        return _cohort_plan(jnp.sort(permutation(key, population)(jnp.arange(cohort))), population)

    return Clock(cohort, True, (), sample, actors_hear=True)


def _cohorts_of_groups(population: int, groups: Groups | None, cohort: Mapping[str, int]) -> Clock:
    """So many clients of each group."""
    if groups is None or set(cohort) != set(groups.names):
        there = "it has none" if groups is None else f"they are {', '.join(groups.names)}"
        raise InputError(f"cohort is {dict(cohort)}; name each group of the data once: {there}.")
    members = [np.flatnonzero(groups.numbers == number).astype(np.int32) for number in range(len(groups.names))]
    counts = [cohort[name] for name in groups.names]
    for name, count, ids in zip(groups.names, counts, members, strict=True):
        check(f"cohort.{name}", Count, count)
        if count > len(ids):
            raise InputError(f"cohort.{name} is {count} but the group has only {amount(len(ids), 'client')}; give "
                             f"at most {len(ids)}.")

    def sample(members: list[Array], key: Key, round: Array) -> Plan:
        drawn = [jnp.asarray(ids)[permutation(jax.random.fold_in(key, number), len(ids))(jnp.arange(count))]
                 for number, (ids, count) in enumerate(zip(members, counts, strict=True))]
        return _cohort_plan(jnp.sort(jnp.concatenate(drawn)), population)

    return Clock(sum(counts), True, members, sample, actors_hear=True)


def _cohort_plan(ids: Array, population: int, counts: Array | None = None) -> Plan:
    """The same clients hear, act and are counted; an id of `population` is a spare slot."""
    there = ids < population
    return Plan(ids, there, there.astype(jnp.int32) if counts is None else counts, there)


def _sample_with_replacement(population: int, cohort: int):
    def sample(arrays: tuple, key: Key, round: Array) -> Plan:
        draws = jnp.sort(jax.random.randint(key, (cohort,), 0, population, jnp.int32))
        first = jnp.concatenate([jnp.ones(1, bool), draws[1:] != draws[:-1]])
        # A client drawn twice works once and counts twice; its other slots stay spare.
        times = jnp.searchsorted(draws, draws, side="right") - jnp.searchsorted(draws, draws, side="left")
        ids = jnp.where(first, draws, population)
        order = jnp.argsort(ids)
        return _cohort_plan(ids[order], population, jnp.where(first, times, 0)[order].astype(jnp.int32))

    return sample


def _sample_available(population: int, cohort: int):
    def sample(trace: Array, key: Key, round: Array) -> Plan:
        present = trace[round % trace.shape[0]]
        lots = jnp.where(present, jax.random.uniform(key, (population,), jnp.float32), 2.0)
        _, drawn = jax.lax.top_k(-lots, cohort)
        return _cohort_plan(jnp.sort(jnp.where(present[drawn], drawn, population)), population)

    return sample


def read_trace(name: str, trace: np.ndarray | str, population: int) -> np.ndarray:
    """Read who is there when: a boolean array [rounds, clients], or an npz file with an array of that name."""
    if isinstance(trace, str):
        try:
            with np.load(trace, allow_pickle=False) as file:
                trace = file[name]
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"cannot read an array {name!r} from {trace}: {error}.") from error
    rows = np.asarray(trace, bool)
    if rows.ndim != 2 or rows.shape[1] != population or not len(rows):
        raise InputError(f"{name}, the trace of who is there, has shape {rows.shape}; it needs one row per round and "
                         f"one column for each of the {population} clients.")
    return rows
