"""What does a FedAvg round of ResNet-18 cost, and how far is that from its arithmetic?

    python benchmarks/resnet.py [--quick] [--seconds 80] [--repeats 7] [--out benchmarks/results/resnet.md]

10 clients with 100 images of 28 x 28 and 62 classes, one local epoch in batches of 32. The convolution of the package,
patches and a matrix product, is held against the compiler's own, which becomes a grouped one where each client has its
own kernels, and against itself with other precisions of matrix products. All contenders take turns in one process; the
table has medians over turns, with the extremes in brackets. Contenders that are not compiled after --seconds are left
out, and named. Operations are those of the matrix products in the gradients of a round, padded rows too: 4 steps of 32
rows for each client. "Of the peak" holds them against --tflops, what the device can do in a second.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from unittest import mock

import jax
import numpy as np
from jax.extend.core import Jaxpr, jaxprs_in_params
from mixed import Contender, add_page, spread, table, take_turns

import cantons as ct
from cantons.models.conv import conv
from cantons.protocol import Batch

COHORT, EXAMPLES, SIDE, CLASSES, BATCH = 10, 100, 28, 62, 32
FULL = "float32"  # the precision at which nothing is rounded to fewer bits


def native(images: jax.Array, kernel: jax.Array, stride: int = 1, padding: int = 0) -> jax.Array:
    """The compiler's own convolution."""
    return jax.lax.conv_general_dilated(images, kernel, (stride, stride), [(padding, padding)] * 2,
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))


def shifted(images: jax.Array, kernel: jax.Array, stride: int = 1, padding: int = 0) -> jax.Array:
    """A sum of products with shifted images, one for each pixel of the kernel: no patches are made."""
    images = jax.numpy.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    rows, columns = kernel.shape[:2]
    height, width = images.shape[1] - rows + 1, images.shape[2] - columns + 1
    return sum(images[:, i : i + height : stride, j : j + width : stride] @ kernel[i, j]
               for i in range(rows) for j in range(columns))


def made_again(images: jax.Array, kernel: jax.Array, stride: int = 1, padding: int = 0) -> jax.Array:
    """Patches that are not kept for the gradient, but made a second time."""
    return jax.checkpoint(partial(conv, stride=stride, padding=padding))(images, kernel)


# name -> (the convolution, the precision of products, the engine's mode); those that matter most come first
CONTENDERS: dict[str, tuple[Callable[..., jax.Array], str | None, str]] = {
    "patches": (conv, None, "vmap"),
    "compiler's convolution": (native, None, "vmap"),
    "patches, float32 products": (conv, FULL, "vmap"),
    "patches, made again for gradients": (made_again, None, "vmap"),
    "shifted images": (shifted, None, "vmap"),
    "compiler's convolution, client by client": (native, None, "scan"),
    "patches, bfloat16 products": (conv, "bfloat16", "vmap"),
    "compiler's convolution, float32 products": (native, FULL, "vmap"),
}


def federation(quick: bool) -> ct.Federation:
    clients, examples, side = (2, 5, 8) if quick else (2 * COHORT, EXAMPLES, SIDE)
    random = np.random.default_rng(0)
    images = random.random((clients * examples, side, side), np.float32)
    return ct.federation(images, random.integers(0, CLASSES, len(images)), np.repeat(np.arange(clients), examples),
                         classes=CLASSES, test=0)


def operations(problem: ct.Problem, data: ct.Federation, cohort: int) -> float:
    """Of the matrix products in all gradients of one round."""
    rows = min(BATCH, data.train.longest)
    shared, private = jax.eval_shape(problem.init, jax.random.key(0))
    images = jax.ShapeDtypeStruct((rows, *data.input_shape), np.float32)
    batch = Batch(images, jax.ShapeDtypeStruct((rows,), np.int32), jax.ShapeDtypeStruct((rows,), np.float32))
    traced = jax.jit(jax.grad(problem.loss)).trace(shared, private, batch)
    return products(traced.jaxpr.jaxpr) * cohort * -(-data.train.longest // rows)


def products(program: Jaxpr) -> float:
    """Operations of the matrix products of a program, those of its functions too."""
    total = 0.0
    for equation in program.eqns:
        if equation.primitive.name == "dot_general":
            ((summed, _), _), (left, _) = equation.params["dimension_numbers"], equation.invars
            total += 2 * equation.outvars[0].aval.size * math.prod(left.aval.shape[axis] for axis in summed)
        total += sum(products(inner) for inner in jaxprs_in_params(equation.params))
    return total


def contender(name: str, problem: ct.Problem, data: ct.Federation, cohort: int) -> Contender:
    convolution, precision, mode = CONTENDERS[name]
    with ExitStack() as settings:
        settings.enter_context(mock.patch("cantons.models.resnet.conv", convolution))
        if precision is not None:
            settings.enter_context(jax.default_matmul_precision(precision))
        return Contender(problem, data, ct.fedavg(step_size=0.01, epochs=1, batch_size=BATCH), ct.Local(mode=mode),
                         cohort)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="windows of each contender")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of a window")
    parser.add_argument("--seconds", type=float, default=80, help="no contender is compiled later than this")
    parser.add_argument("--tflops", type=float, default=495, help="of the device; 495: an H200 with TF32, dense")
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--quick", action="store_true", help="two clients with five images of 8 x 8")
    parser.add_argument("--out", type=Path, help="a Markdown file to which the table is added")
    options = parser.parse_args()

    began, data = time.perf_counter(), federation(options.quick)
    cohort = min(COHORT, data.population)
    problem = ct.classification(data, ct.resnet18())
    flops = operations(problem, data, cohort)
    print(f"{flops / 1e12:.3g} TFLOP in a round: {1e-9 * flops / options.tflops:.3g} ms at {options.tflops:g} TFLOP/s",
          flush=True)
    ready: dict[str, Contender] = {}
    for name in options.contenders:
        if time.perf_counter() - began > options.seconds:
            break
        started = time.perf_counter()
        try:
            ready[name] = contender(name, problem, data, cohort)
        except Exception as error:  # one that needs more memory than there is must not take the others with it
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:200]}", flush=True)
            continue
        first = ready[name].play(1)
        print(f"{name}: compiled in {time.perf_counter() - started:.1f} s, first round {first:.1f} ms", flush=True)
    found = take_turns(ready, options.rounds, options.repeats)
    rows = [[name, spread(times), f"{1e-9 * flops / statistics.median(times):.3g}",
             f"{1e-9 * flops / statistics.median(times) / options.tflops:.1%}",
             f"{ready[name].working_bytes / 2**30:.2f}"] for name, times in found.items()]
    device = jax.devices()[0]
    left_out = [name for name in options.contenders if name not in ready]
    page = [f"## {device.device_kind}, JAX {jax.__version__}", "",
            f"`{' '.join([Path(sys.executable).name, *sys.argv])}`: {flops / 1e12:.3g} TFLOP in a round; left out: "
            f"{', '.join(left_out) or 'none'}", "",
            table(["convolution", "ms per round", "TFLOP/s", "of the peak", "working memory, GiB"], rows), ""]
    print("\n".join(page), flush=True)
    add_page(options.out, page)


if __name__ == "__main__":
    main()
