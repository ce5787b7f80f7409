"""Augmentation: images that are changed at random while a network is trained, in ways that leave their labels alone.

Each step draws anew, for every image. Predictions and scores see images as they are, and so do the tuners that solve
for all of a client's examples at once: cg, exact, lbfgs, newton and newton_cg.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from cantons.errors import InputError, first_line, with_article
from cantons.models.base import Model
from cantons.protocol import Array, Key
from cantons.ranges import Count, Named, checked

Augmentation = Callable[[Key, Array], Array]  # (key, images [B, height, width, ...]) -> images of that shape


@checked
def crop(padding: Count = 4) -> Augmentation:
    """Put so many rows and columns of zeros around an image, and cut it back to its size at a random place."""
    def change(key, images):
        height, width = _size(images)
        if padding >= min(height, width):
            raise InputError(f"crop has a padding of {padding}, and images are {height} x {width}: nothing might be "
                             "left of one; give less.")
        around = ((padding, padding), (padding, padding), *[(0, 0)] * (images.ndim - 3))
        corners = jax.random.randint(key, (len(images), 2), 0, 2 * padding + 1)
        return jax.vmap(lambda image, corner: jax.lax.dynamic_slice(
            jnp.pad(image, around), (*corner, *[0] * (image.ndim - 2)), image.shape))(images, corners)

    return change


@checked
def flip() -> Augmentation:
    """Turn left and right round, in every other image on average."""
    def change(key, images):
        _size(images)
        turned = jax.random.bernoulli(key, shape=(len(images), *[1] * (images.ndim - 1)))
        return jnp.where(turned, images[:, :, ::-1], images)

    return change


AUGMENTATIONS: dict[str, Callable[..., Augmentation]] = {"crop": crop, "flip": flip}
One = (Annotated[str, Named("augmentation", AUGMENTATIONS)] | Annotated[dict, Named("augmentation", AUGMENTATIONS)]
       | Augmentation)
Augment = One | list[One]  # a name, a table with a name and options, a function, or some of these, in their order


def augmented(model: Model, augment: Augment | None, input_shape: Sequence[int]) -> Model:
    """The network, trained with inputs that `augment` changes."""
    changes = [_change(one) for one in _several(augment)]
    if not changes:
        return model
    for change in changes:
        _check_shape(change, tuple(input_shape))

    def train(params, inputs, key):
        for number, change in enumerate(changes):
            inputs = change(jax.random.fold_in(key, number), inputs)
        if model.train is None:
            return model.apply(params, inputs)
        return model.train(params, inputs, jax.random.fold_in(key, len(changes)))

    return model._replace(train=train)


def written_augment(augment: Augment | None) -> dict[str, Any] | None:
    """The option as a study has it: nothing if it was not given, and None where a function has no name."""
    if not all(isinstance(one, str | Mapping) for one in _several(augment)):
        return None
    return {"augment": augment} if augment else {}


def _several(augment: Augment | None) -> Sequence[Any]:
    if augment is None:
        return []
    return augment if isinstance(augment, Sequence) and not isinstance(augment, str) else [augment]


def _change(one: Any) -> Augmentation:
    if callable(one):
        return one
    table = {"name": one} if isinstance(one, str) else one
    return AUGMENTATIONS[table["name"]](**{key: value for key, value in table.items() if key != "name"})


def _size(images: Array) -> tuple[int, int]:
    if images.ndim not in (3, 4):
        raise InputError("augmentation is for images [height, width] or [height, width, channels], and an input has "
                         f"shape {images.shape[1:]}; give images, or no augmentation.")
    return images.shape[1], images.shape[2]


def _check_shape(change: Augmentation, shape: tuple[int, ...]) -> None:
    images = jax.ShapeDtypeStruct((2, *shape), jnp.float32)
    try:
        changed = jax.eval_shape(lambda images: change(jax.random.key(0), images), images)  # a key here wakes no device
    except InputError:
        raise
    except Exception as error:  # whatever a stranger's function raises
        raise InputError(f"an augmentation cannot change {_written(images)} ({first_line(error)}); it takes (key, "
                         "images), and gives images of that shape, in JAX.") from error
    if _written(changed) != _written(images):
        raise InputError(f"an augmentation makes {_written(changed)} from {_written(images)}; give one that keeps the "
                         "shape and the type of images.")


def _written(images: Any) -> str:
    """
    >>> _written(jnp.zeros((2, 5))), _written([])
    ('float32[2, 5]', 'a list')
    """
    if not hasattr(images, "dtype"):
        return with_article(type(images).__name__)
    return f"{images.dtype.name}{list(images.shape)}"
