"""Settle everything about a run before it begins: fill in defaults, build the parts, refuse what cannot work."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from cantons.attack import Byzantine
from cantons.clock import rounds as rounds_clock
from cantons.data import Centres, Federation, kinds_of, with_keys, with_validation
from cantons.data.seeds import generator
from cantons.engine import seed_keys, starting_point, starting_shapes
from cantons.errors import InputError, amount, one_of
from cantons.protocol import (
    Algorithm,
    Averages,
    CentralExamples,
    Clock,
    Engine,
    Parts,
    Problem,
    PyTree,
    Recipe,
    StackRule,
    Start,
)
from cantons.ranges import Count, Seed, check
from cantons.study.arguments import check_arguments
from cantons.study.byzantine import corrupt_parts, draw_liars
from cantons.study.source import foreign_sources
from cantons.study.whole_parts import whole_problem, whole_recipe

VALIDATION = 0.2  # of the training rows, where rows to choose by are wanted and the study does not say how many


class Resolved(NamedTuple):
    """A run of which nothing is left open."""

    study: dict[str, Any]  # as it goes to the run folder, every default filled in
    data: Federation
    parts: Parts
    start: Start | tuple[PyTree, PyTree] | None = None  # instead of the problem's own
    liars: np.ndarray | None = None  # does each client lie? None: all are honest
    honest: Parts | None = None  # the parts without the attack, where there is one
    byzantine: Byzantine | None = None

    def with_seed(self, seed: int) -> Resolved:
        """The same run with another seed, which draws other liars."""
        parts = (self.honest or self.parts)._replace(
            seed=seed, scored=sample_clients(self.data, seed, self.study["evaluate_clients"]))
        run = self._replace(study={**self.study, "seed": seed}, parts=parts)
        return run if self.byzantine is None else run.with_liars(self.byzantine)

    def with_liars(self, byzantine: Byzantine) -> Resolved:
        """The same run, honest so far, in which some clients lie."""
        liars = draw_liars(byzantine, self.data, self.parts.seed)
        names = [name for name, lies in zip(self.data.clients.names, liars, strict=True) if lies]
        table = {"attack": whole_recipe(byzantine.attack), "count": byzantine.number, "clients": names}
        corrupted = corrupt_parts(self.parts, byzantine, liars)._replace(
            scored=sample_clients(self.data, self.parts.seed, self.study["evaluate_clients"], liars))
        return self._replace(study={**self.study, "byzantine": table}, parts=corrupted, liars=liars, honest=self.parts,
                             byzantine=byzantine)


def resolve(problem: Problem, data: Federation, algorithm: Recipe, *, rounds: int, cohort: int | None = None,
            clock: Recipe | None = None, aggregate: Recipe | None = None, byzantine: Byzantine | None = None,
            seed: int = 0, evaluate_every: int | None = None, evaluate_clients: int | None = None,
            validation: float | None = None, patience: int | None = None, choose: bool = False,
            precision: str = "float32", engine: Engine, checkpoint_every: int | None = None, keep: int = 3,
            name: str | None = None, of_rows: Problem | None = None,
            initial: Start | tuple[PyTree, PyTree] | Callable[[Parts], Start] | None = None) -> Resolved:
    """Check the settings and build the parts. With `choose`, hold rows back to choose by, unless a stream serves; with
    `patience`, to stop by.

    `initial` is where the run begins, or a function from its parts to that. `of_rows` is the problem that the rows of
    the data are for, where another one is trained.
    """
    check_arguments(problem, data, algorithm, clock=clock, aggregate=aggregate, byzantine=byzantine, engine=engine)
    for option, kind, value in (("rounds", Count, rounds), ("evaluate_every", Count | None, evaluate_every),
                                ("evaluate_clients", Count | None, evaluate_clients), ("keep", Count, keep),
                                ("patience", Count | None, patience),
                                ("checkpoint_every", Count | None, checkpoint_every), ("seed", Seed, seed)):
        check(option, kind, value)
    if evaluate_clients is not None and evaluate_clients > data.population:
        raise InputError(f"evaluate_clients is {evaluate_clients} but there are only "
                         f"{amount(data.population, 'client')}; give at most {data.population}, or leave it out to "
                         "score everybody.")
    every = max(1, rounds // 10) if evaluate_every is None else evaluate_every
    one_of("precision", precision, ("float32", "float64"))
    if clock is not None and cohort is not None:
        raise InputError("give cohort or clock, not both: the clock has a cohort of its own.")
    if clock is None:
        clock = rounds_clock(cohort=cohort)
    built, ticking = build_parts(problem, data, algorithm, clock, aggregate, rounds)
    check_data(of_rows or problem, data)
    if patience is not None and ticking.online is not None:
        raise InputError("patience is with the scores of validation rows, and a stream has none; leave it out.")
    to_stop = patience is not None and data.validation is None
    if (choose or to_stop) and validation is None and ticking.online is None:
        validation = VALIDATION  # a stream is scored as it is met
    if validation is not None:
        data = with_validation(data, validation)
    study: dict[str, Any] = {
        "name": name or algorithm.name, "seed": seed, "rounds": rounds, "evaluate_every": every,
        "evaluate_clients": evaluate_clients, "validation": validation, "precision": precision,
        "data": identity_of(data), "problem": whole_problem(problem.spec), "algorithm": whole_recipe(algorithm),
        "clock": whole_recipe(clock), "aggregate": None if aggregate is None else whole_recipe(aggregate),
        "engine": {"name": engine.name, **engine.options()},
        "checkpoint_every": checkpoint_every, "keep": keep,
    }
    if jax.tree.leaves(ticking.arrays):  # it may have read them from a file, whose name says nothing of what is in it
        study["clock_checksum"] = checksum_of(ticking.arrays)
    if patience is not None:
        study["patience"] = patience
    tables = [study[table] for table in ("problem", "algorithm", "clock", "aggregate", "engine")]
    attack = None if byzantine is None else byzantine.attack
    study["source"] = foreign_sources([problem, algorithm, clock, aggregate, engine, attack],
                                      [*tables, None if attack is None else attack.table(), data.spec,
                                       data.central_spec, data.groups_spec])
    parts = parts_of(problem, data, algorithm, built, ticking, seed)._replace(
        scored=sample_clients(data, seed, evaluate_clients))
    run = Resolved(study, data, parts)
    if byzantine is not None:
        run = run.with_liars(byzantine)
    check_engine(engine, run.parts)
    with jax.enable_x64(precision == "float64"):
        start = initial(parts) if callable(initial) else initial
        check_start(algorithm.name, built, problem, seed, start)
    if start is not None:
        run.study["initial"] = checksum_of(start)
    return run._replace(start=start)


def check_data(problem: Problem, data: Federation) -> None:
    """Refuse inputs that the problem cannot take, wherever they stand, and labels that it would mistake."""
    if problem.every_label and data.unlabelled:
        raise InputError(f"{data.name}: some targets are -1, for no label, and the loss of this problem would take "
                         "them for labels; use classification, or loss=\"masked_softmax\", which leave them out.")
    new = () if data.new is None else (data.new.train, data.new.test)
    given = [examples for examples in (data.train, data.test, data.validation, *kinds_of(data.central).values(), *new)
             if examples is not None]
    for examples in given:
        try:
            problem.check_inputs(examples.inputs)
        except InputError as error:
            raise InputError(f"{data.name}: {error}") from error
    if problem.outputs == "logits":
        labels = [leaf for examples in given for leaf in jax.tree.leaves(examples.targets) if leaf.dtype.kind in "iu"]
        largest = max((int(leaf.max()) for leaf in labels if leaf.size), default=0)
        shape = _shape_of_outputs(problem, data)
        if len(shape) > 1 and largest >= shape[-1]:  # one that is not per class is refused by the loss
            raise InputError(f"{data.name}: a label is {largest}, and the outputs of the model are those of the labels "
                             f"0 to {shape[-1] - 1}; give it one output per class.")


def _shape_of_outputs(problem: Problem, data: Federation) -> tuple[int, ...]:
    """What the model gives for a batch of two; nothing is computed."""
    rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((2, *leaf.shape[1:]), jax.dtypes.canonicalize_dtype(
        leaf.dtype)), data.train.inputs)
    return jax.eval_shape(lambda key, rows: problem.predict(*problem.init(key), rows), jax.random.key(0), rows).shape


def sample_clients(data: Federation, seed: int, count: int | None,
                   liars: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """The numbers of the clients that evaluations score, and of the new ones; nothing where everybody is scored.

    They follow from the seed, the population and who lies. Those of a smaller `count` are among those of a larger one.
    """
    honest = {"clients": np.ones(data.population, bool) if liars is None else ~liars}
    if data.new is not None:
        honest["new"] = np.ones(data.new.train.population, bool)

    def sample(side: str) -> np.ndarray:
        order = generator(seed, "evaluate", side).permutation(len(honest[side]))
        return np.sort(order[honest[side][order]][:count]).astype(np.int32)

    return {side: sample(side) for side, chosen in honest.items() if count is not None and count < chosen.sum()}


def parts_of(problem: Problem, data: Federation, recipe: Recipe, algorithm: Algorithm, clock: Clock,
             seed: int) -> Parts:
    """What an engine is given."""
    data = with_keys(data, problem.draws)
    return Parts(problem, recipe, algorithm, clock, data, data.central, seed)


def build_parts(problem: Problem, data: Federation, algorithm: Recipe, clock: Recipe, aggregate: Recipe | None,
                rounds: int) -> tuple[Algorithm, Clock]:
    """Build the algorithm and the clock, and refuse a pair that makes no sense."""
    built, ticking = algorithm.build(problem, data.population), build_clock(clock, data)
    if aggregate is not None:
        built = choose_rule(algorithm.name, built, aggregate)
    if built.needs.stream and not ticking.online:
        raise InputError(f"{algorithm.name} learns from a stream of examples; give it the online clock: "
                         "clock=online(), or in a study file [clock] name = \"online\".")
    if built.needs.counts_once and ticking.repeats:
        raise InputError(f"{algorithm.name} breaks when one upload counts twice; sample without replacement.")
    if built.needs.pooled and problem.groups:
        raise InputError(f"{algorithm.name} pools the rows of all clients, and then nobody's group is known; give the "
                         "problem no losses or weights of groups.")
    check_datacenter(algorithm.name, built, problem, data.central)
    check_tables(problem, data)
    check_groups(problem, data)
    built.needs.examples(data.train)
    if isinstance(built.aggregate, Averages) and isinstance(built.aggregate.rule, StackRule) and (
            built.aggregate.rule.bears is not None):
        built.aggregate.rule.bears(ticking.cohort)
    try:
        ticking.check(built, rounds)
    except InputError as error:
        raise InputError(f"{algorithm.name} under the clock {clock.name}: {error}") from error
    return built, ticking


def check_datacenter(name: str, algorithm: Algorithm, problem: Problem, central: CentralExamples | None) -> None:
    """Refuse a datacenter without the loss or the examples that the algorithm needs."""
    needs = algorithm.needs
    if needs.central == "loss" and problem.central is None:
        raise InputError(f"{name} needs a loss of the datacenter and this problem has none; give the problem a "
                         "central_loss, such as \"same\".")
    wants = needs.central == "data" or (needs.central == "loss" and problem.central and problem.central.needs_data)
    if wants and central is None:
        raise InputError(f"{name} needs examples of the datacenter and there are none; give the study a [central] "
                         "table (in Python: with_central(data, ...)).")
    kinds = problem.central.kinds if problem.central is not None else ()
    if wants and isinstance(central, Centres) and not set(kinds) <= set(central.rows):
        raise InputError(f"the datacenter's examples are {', '.join(central.rows)}, and the central losses that look "
                         f"at examples are {', '.join(kinds)}; give each of them examples of its name.")
    if wants and isinstance(central, Centres) and not kinds:
        raise InputError(f"the datacenter has examples of several kinds, {', '.join(central.rows)}; give the problem a "
                         "central loss for each, by name.")
    if wants and central is not None and central.longest < needs.central_rows:
        raise InputError(f"{name} draws batches of {needs.central_rows} examples of the datacenter, which has "
                         f"{central.longest}; lower central_batch_size, or set it to none for all of them.")


def check_groups(problem: Problem, data: Federation) -> None:
    """Refuse a problem whose groups are not the data's."""
    wanted = tuple(group.name for group in problem.groups)
    there = () if data.clients.groups is None else data.clients.groups.names
    if wanted and wanted != there:
        raise InputError(f"the problem has losses for the groups {', '.join(wanted)}, and the data has "
                         f"{', '.join(there) or 'no groups'}; give it the same ones, in that order.")


def check_tables(problem: Problem, data: Federation) -> None:
    """Refuse examples that look at rows which the problem's tables do not have."""
    if problem.tables is None:
        return
    sets = {"the training examples": data.train, "the test examples": data.test,
            "the validation examples": data.validation, **data.sets}
    sets |= {f"the datacenter's examples ({name})": rows for name, rows in kinds_of(data.central).items()}
    if data.new is not None:
        sets |= {"the new clients' training examples": data.new.train, "the new clients' test examples": data.new.test}
    for words, examples in sets.items():
        if examples is None or not np.sum(examples.sizes):
            continue
        numbers = np.asarray(problem.tables.rows(examples.pooled().full()))
        odd = numbers[(numbers < -1) | (numbers >= problem.tables.size)]
        if odd.size:
            raise InputError(f"{words} look at row {odd[0]} of the problem's tables, which have {problem.tables.size} "
                             "rows, numbered from 0; give the problem larger tables, or number the rows anew.")


def build_clock(clock: Recipe, data: Federation) -> Clock:
    """A clock may take from the data who has examples when, and who its clients are."""
    return clock.build(data.population, data.arrivals, data.clients.groups, data.clients)


def choose_rule(name: str, algorithm: Algorithm, rule: Recipe) -> Algorithm:
    """The algorithm with another aggregation rule, where that makes sense."""
    averages = algorithm.aggregate
    if not isinstance(averages, Averages):
        raise InputError(f"{name} has an aggregation of its own, which is part of the method and cannot be "
                         f"{rule.name}; leave aggregate out.")
    if averages.only:
        raise InputError(f"{name} cannot aggregate by {rule.name}, because {averages.only}; leave aggregate out.")
    return algorithm._replace(aggregate=averages._replace(rule=rule.build()))


def check_start(name: str, algorithm: Algorithm, problem: Problem, seed: int,
                initial: Start | tuple[PyTree, PyTree] | None = None) -> None:
    """Refuse a split the algorithm cannot work with, or a start it cannot leave from."""
    key, _, _ = seed_keys(seed)
    shared, private = starting_shapes(problem, key, initial)[:2]
    if algorithm.theory is not None:
        algorithm.theory.check_start(jax.device_get(starting_point(problem, key, initial).shared))
    if algorithm.needs.private and not jax.tree.leaves(private):
        raise InputError(f"{name} needs a private part and this problem has none; give the problem a split, such as "
                         "split = \"output\".")
    if algorithm.needs.shared and not jax.tree.leaves(shared):
        raise InputError(f"{name} needs a shared part and this problem has none; choose another split, or train every "
                         "client alone with the algorithm independent.")


def check_engine(engine: Engine, run: Parts) -> None:
    refusal = engine.refuses(run)
    if refusal:
        raise InputError(f"the engine {engine.name} {refusal}")


def identity_of(data: Federation) -> dict[str, Any]:
    """What identifies the data: how it was made, its size, and a checksum of its bytes; and what to know of it."""
    sets: list[Any] = [data.train, data.test, data.central, data.validation, data.arrivals, data.sets]
    if data.new is not None:
        sets += [data.new.train, data.new.test]
    found = {"name": data.name, "made_by": data.spec, "population": data.population,
             "examples": int(data.train.sizes.sum()), "test_set": data.test_set,
             "checksum": checksum_of([sets, np.array(data.clients.names)])}
    more = {"central": data.central_spec, "groups": data.groups_spec, "notes": list(data.notes) or None}
    return found | {name: spec for name, spec in more.items() if spec is not None}


def checksum_of(tree: PyTree) -> str:
    """Of every array in a tree: its type, its shape and its bytes."""
    checksum = hashlib.blake2b(digest_size=16)
    for leaf in jax.tree.leaves(tree):
        array = np.ascontiguousarray(leaf)
        checksum.update(f"{array.dtype} {array.shape}".encode())
        checksum.update(array.tobytes())
    return checksum.hexdigest()
