"""A problem: what is minimised, and what is known about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cantons.protocol.examples import Batch
from cantons.protocol.types import Array, Key, PyTree


class Residual(NamedTuple):
    """A joint prediction: the outputs of the shared model plus those of the private one.

    The server needs `features`, a client's outputs and the targets, and nothing else of a client.
    """

    features: Callable[[PyTree], PyTree]  # inputs -> the features the shared model looks at
    shared: Callable[[PyTree, PyTree], Array]  # (shared, features) -> outputs
    private: Callable[[PyTree, PyTree], Array]  # (private, inputs) -> outputs
    loss: Callable[[Array, PyTree, Array], Array]  # (summed outputs, targets, mask) -> the mean over real rows
    as_outputs: Callable[[PyTree], Array] = lambda targets: targets  # targets -> the numbers that outputs should be
    quadratic: bool = False  # two linear models and the squared loss: least squares in the parameters
    empty_batch: Callable[[int], Batch] | None = None  # n -> a masked batch of n rows, to allocate memory with
    # Two more for private models that are no part of the problem; None: it cannot do without its own.
    private_features: Callable[[PyTree], PyTree] | None = None  # inputs -> the features the private model looks at
    score: Callable[[Array, PyTree], dict[str, Array]] | None = None  # (summed outputs, targets) -> as Problem.score


class Convex(NamedTuple):
    """Losses that are convex in all parameters together, and how the best point for many of them is found."""

    curvature: float = 0.0  # the least second derivative of any example's loss, in any direction
    # "half_squared", "absolute" or "linear": the loss of x is |x - a|^2 / 2, |x - a|_1 or <x, a> for an input a,
    # and the best point is known by adding up. "smooth": any other, whose best point is searched for by gradients.
    form: str = "smooth"


class SetMetric(NamedTuple):
    """A metric of a whole set, such as the area under the ROC curve: no mean over its examples."""

    collect: Callable[[PyTree, PyTree, Batch], PyTree]  # (shared, private, batch) -> arrays with one row per example
    finish: Callable[[PyTree], float]  # these arrays, for all examples and on the host -> the metric


class CentralTerm(NamedTuple):
    """One of several losses of a datacenter."""

    name: str
    loss: Callable[[PyTree, PyTree, Any], Array]  # (shared, private, the centre's batch), its weight inside
    weight: float


class CentralLoss(NamedTuple):
    """The loss of the datacenter, f_c."""

    loss: Callable[[PyTree, PyTree, Any], Array]  # (shared, private, batch)
    needs_data: bool = True  # False: it looks at no examples, and its batch is None
    weights: tuple[float, float] = (1.0, 1.0)  # (w_f, w_c), which the clients' loss and this one have inside
    terms: tuple[CentralTerm, ...] = ()  # where it is the sum of several
    kinds: tuple[str, ...] = ()  # the names of the examples that these look at, where each has its own


class GroupLoss(NamedTuple):
    """One of several populations of clients, in a problem where each has a loss of its own."""

    name: str
    weight: float  # which its loss has inside


class Tables(NamedTuple):
    """Arrays of the shared part of which a batch looks at some rows only, such as the vectors of words.

    All of them have as many rows, and one numbering serves all.
    """

    paths: tuple[str, ...]  # where they are in the shared part, as in "layer0/weight"
    size: int  # how many rows they have
    rows: Callable[[Batch], Array]  # the numbers of the rows that the loss of a batch looks at, and -1 for none
    renumber: Callable[[Batch, Callable[[Array], Array]], Batch]  # (batch, old numbers -> new) -> the batch in new ones


class Dense(NamedTuple):
    """A network inside a model: layers "layer0", ... of weights, perhaps with biases, and relu between them."""

    params: Mapping[str, Mapping[str, Array]]
    columns: Array | None = None  # the inputs that it looks at; None: all


class Problem(NamedTuple):
    """What is minimised: sum_i weight_i * loss_i(shared, private_i) + central.loss(shared)."""

    init: Callable[[Key], tuple[PyTree, PyTree]]  # key -> (shared, private); either may hold no arrays
    loss: Callable[[PyTree, PyTree, Batch], Array]  # the mean over the batch's unmasked rows
    predict: Callable[[PyTree, PyTree, PyTree], PyTree]  # (shared, private, inputs) -> outputs
    score: Callable[[PyTree, PyTree, Batch], dict[str, Array]]  # each metric's value per example
    maximise: tuple[str, ...] = ("accuracy",)  # the metrics of `score` that are better when larger
    central: CentralLoss | None = None  # the datacenter's loss, where it has one
    spec: Mapping[str, Any] | None = None  # the named parts and options that rebuild this problem
    residual: Residual | None = None  # where predictions are joint, their two halves
    convex: Convex | None = None  # None: not known to be
    set_metrics: Mapping[str, SetMetric] = {}  # of whole test sets, beside the means of what `score` gives
    numeric_targets: bool = False  # targets are quantities: labels, numbered 0, 1, ..., will not do
    every_label: bool = False  # targets are labels, and none of several to an example may be missing, as -1
    check_inputs: Callable[[PyTree], None] = lambda inputs: None  # refuses those from which nothing can be predicted
    tables: Tables | None = None  # arrays of which a client needs some rows only, where there are any
    draws: bool = False  # `loss` draws at random, as dropout does, where a batch has a key
    groups: tuple[GroupLoss, ...] = ()  # in the order of the data's, where `loss` asks a batch for its group
    # (shared, private) -> the parameters of the whole model, where the two are parts of one
    join: Callable[[PyTree, PyTree], PyTree] | None = None
    # What `predict` gives: "numbers"; for every class "logits", or "scores" that are no logits; or for two classes one
    # number, the "log_odds" of the second or its "sign" alone.
    outputs: str = "numbers"
    # (shared, private) -> networks whose outputs are summed; None: it is not made of such
    dense: Callable[[PyTree, PyTree], list[Dense]] | None = None

    def __repr__(self) -> str:
        """Its name and options, as a study has them, and no functions."""
        if self.spec is None:
            return "<a problem written in Python>"
        options = (f"{name}={value!r}" for name, value in self.spec.items() if name != "name")
        return f"{self.spec['name']}({', '.join(options)})"
