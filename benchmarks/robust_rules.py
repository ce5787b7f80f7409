"""What does it cost to aggregate with a robust rule?

    python benchmarks/robust_rules.py [--numbers 10000000] [--uploads 100] [--repeats 7] [--out FILE]

Every rule alone, in buckets of two, and mixed, on uploads of random numbers in three arrays, compiled as an engine
compiles it. Time is the median over turns, with the extremes in brackets: all rules take turns. Working memory is what
the compiled program holds beside the uploads and its result, in multiples of the uploads. The aim: every rule on 100
uploads of 10^7 numbers takes less than 2 s on an H200, and less than twice the uploads.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from mixed import add_page, spread, table

import cantons as ct
from cantons.protocol import Average, StackRule, SumRule

BEFORE: dict[str, dict[str, Any]] = {"alone": {}, "buckets of 2": {"bucket": 2}, "mixed": {"mix": True}}
SHARES = 0.6, 0.3, 0.1  # of the numbers, in three arrays as a model has them


class Contender(NamedTuple):
    reduce: Callable[..., Any]  # (uploads) -> the aggregate, compiled
    working: int  # bytes


def contender(rule: StackRule, uploads: Average, expected: int) -> Contender:
    ids = jnp.arange(len(uploads.weight), dtype=jnp.int32)
    state = rule.init(jax.tree.map(lambda rows: jnp.zeros(rows.shape[1:], rows.dtype), uploads.value))

    def reduce(uploads: Average, state: Any) -> Any:
        aggregate, state, _ = rule.reduce(jax.random.key(0), state, uploads, ids, expected)
        return aggregate.value, state

    compiled = jax.jit(reduce).lower(uploads, state).compile()
    return Contender(lambda: compiled(uploads, state), compiled.memory_analysis().temp_size_in_bytes)


def added_up(rule: SumRule, uploads: Average) -> Contender:
    """A rule that is a sum, as an engine does it: one upload after the other."""

    def reduce(uploads: Average) -> Any:
        def lift(upload: Average) -> Any:
            return rule.lift((), upload)

        def add(total: Any, upload: Average) -> Any:
            return jax.tree.map(jnp.add, total, lift(upload)), None

        shapes = jax.eval_shape(lift, jax.tree.map(lambda rows: rows[0], uploads))
        total, _ = jax.lax.scan(add, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes), uploads)
        return rule.finish(jax.random.key(0), (), total, len(uploads.weight))[0].value

    compiled = jax.jit(reduce).lower(uploads).compile()
    return Contender(lambda: compiled(uploads), compiled.memory_analysis().temp_size_in_bytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numbers", type=int, default=100_000, help="in each upload")
    parser.add_argument("--uploads", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, help="a Markdown file to which the table is added")
    given = parser.parse_args()
    liars = given.uploads // 10
    rules = {"trimmed_mean": ct.trimmed_mean, "median": ct.median, "geometric_median": ct.geometric_median,
             "krum": ct.krum, "multi_krum": ct.multi_krum, "centred_clipping": ct.centred_clipping}
    keys = jax.random.split(jax.random.key(1), len(SHARES))
    value = {f"layer{place}": jax.random.normal(key, (given.uploads, int(share * given.numbers)), jnp.float32)
             for place, (key, share) in enumerate(zip(keys, SHARES, strict=True))}
    uploads = Average(value, jnp.ones(given.uploads))
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(value))
    contenders = {}
    for name, rule in rules.items():
        for before, options in BEFORE.items():
            contenders[name, before] = contender(rule(f=liars, **options).build(), uploads, given.uploads)
            jax.block_until_ready(contenders[name, before].reduce())  # warms up
    contenders["norm_bound", "alone"] = added_up(ct.norm_bound().build(), uploads)
    jax.block_until_ready(contenders["norm_bound", "alone"].reduce())
    seconds: dict[tuple[str, str], list[float]] = {names: [] for names in contenders}
    for _ in range(given.repeats):
        for names, each in contenders.items():
            begun = time.perf_counter()
            jax.block_until_ready(each.reduce())
            seconds[names].append(time.perf_counter() - begun)
    rows = [[*names, spread(seconds[names]), f"{each.working / size:.2f}"] for names, each in contenders.items()]
    device = jax.devices()[0]
    page = [f"## {device.device_kind}, JAX {jax.__version__}: {given.uploads} uploads of {given.numbers:,} numbers", "",
            table(["rule", "before it", "seconds", "working memory / uploads"], rows), "",
            f"`python benchmarks/robust_rules.py --numbers {given.numbers} --uploads {given.uploads}`", ""]
    print("\n".join(page))
    add_page(given.out, page)


if __name__ == "__main__":
    main()
