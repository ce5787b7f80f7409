"""Residual networks of small images, with group normalisation in place of running statistics."""

from __future__ import annotations

import itertools

import jax

from cantons.errors import InputError
from cantons.models.base import Model, Named
from cantons.models.conv import conv
from cantons.models.dropout import dropper
from cantons.models.layer import WEIGHTS, affine, glorot
from cantons.models.norm import group_norm, norm
from cantons.protocol import Array, Key, PyTree
from cantons.ranges import Count, Decay, checked

CHANNELS = 64, 128, 256, 512  # of the four stages, with two blocks each
BLOCKS = 2


@checked
def resnet18(groups: Count = 2, dropout: Decay = 0.0) -> Named:
    """ResNet-18 for small images: its first convolution is 3 x 3 with stride 1, and no pooling follows it.

    He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, with the two changes for images of 28 x 28 of
    section E.5.3 of the FFGG paper, and with group normalisation; two groups are those of Reddi et al., "Adaptive
    Federated Optimization", ICLR 2021. Inputs are images [H, W, channels], or greyscale [H, W]; "input" of a split is
    the first convolution with its normalisation.

    groups: how many groups of channels are normalised, each by itself.
    dropout: the probability with which a number that enters the last layer is 0 in training.
    """
    if CHANNELS[0] % groups:
        raise InputError(f"resnet18 got {groups} groups; give a number that divides its {CHANNELS[0]} channels.")

    def build(input_shape: tuple[int, ...], outputs: int) -> Model:
        if len(input_shape) not in (2, 3):
            raise InputError(f"resnet18 got inputs of shape {input_shape}; "
                             "give images [H, W, channels] or [H, W], or use mlp.")
        image = (*input_shape, 1)[:3]
        widths = list(itertools.pairwise([CHANNELS[0], *(width for width in CHANNELS for _ in range(BLOCKS))]))
        names = [f"stage{i}/block{j}".split("/") for i in range(len(CHANNELS)) for j in range(BLOCKS)]

        def init(key):
            first, last, *keys = jax.random.split(key, 2 + len(names))
            params = {"stem": {"conv": he(first, (3, 3, image[2], CHANNELS[0])), "norm": norm(CHANNELS[0])},
                      "output": glorot(last, (CHANNELS[-1], outputs))}
            for (stage, block), own, shape in zip(names, keys, widths, strict=True):
                params.setdefault(stage, {})[block] = init_block(own, *shape)
            return params

        def forward(params, images, key=None):
            stem, drop = params["stem"], dropper(dropout, key)
            values = conv(images.reshape(-1, *image), stem["conv"]["weight"], padding=1)
            values = jax.nn.relu(group_norm(stem["norm"], values, groups))
            for stage, block in names:
                values = residual_block(params[stage][block], values, groups)
            return affine(params["output"], drop(values.mean((1, 2))))

        return Model(init, forward, input_layer="stem/*", output_layer="output/*", norm_layers=("*norm*/*",),
                     adapted=WEIGHTS, train=forward if dropout else None)

    return Named("resnet18", {"groups": groups, "dropout": dropout}, build)


def residual_block(params: PyTree, images: Array, groups: int) -> Array:
    """relu(images + F(images)), where F has two convolutions. Where they change the shape, `images` are projected."""
    stride = 2 if "skip" in params else 1
    values = conv(images, params["conv0"]["weight"], stride, padding=1)
    values = jax.nn.relu(group_norm(params["norm0"], values, groups))
    values = group_norm(params["norm1"], conv(values, params["conv1"]["weight"], padding=1), groups)
    if "skip" in params:
        images = group_norm(params["skip"]["norm"], conv(images, params["skip"]["conv"]["weight"], stride), groups)
    return jax.nn.relu(images + values)


def init_block(key: Key, inputs: int, outputs: int) -> PyTree:
    first, second, skip = jax.random.split(key, 3)
    block = {"conv0": he(first, (3, 3, inputs, outputs)), "norm0": norm(outputs),
             "conv1": he(second, (3, 3, outputs, outputs)), "norm1": norm(outputs)}
    if inputs == outputs:
        return block
    return block | {"skip": {"conv": he(skip, (1, 1, inputs, outputs)), "norm": norm(outputs)}}


def he(key: Key, shape: tuple[int, ...]) -> dict[str, Array]:
    """Weights as He et al. (2015) draw them, for relu. There is no bias: normalisation follows."""
    return {"weight": jax.nn.initializers.he_normal()(key, shape)}
