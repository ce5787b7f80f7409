"""Owns: what liars do, and how a run comes to have some. May import: protocol, map_batches, recipe, ranges, errors."""

from collections.abc import Callable

from cantons.attack.all_knowing import a_little_is_enough, inner_product, mimic
from cantons.attack.byzantine import Byzantine, byzantine
from cantons.attack.corrupt import corrupt, mistimed
from cantons.attack.own_upload import delay, label_flip, noise, not_finite, scaling, sign_flip, silence
from cantons.protocol import Recipe

# The attacks a study can name.
ATTACKS: dict[str, Callable[..., Recipe]] = {build.__name__: build for build in (
    a_little_is_enough, delay, inner_product, label_flip, mimic, noise, not_finite, scaling, sign_flip, silence)}

__all__ = ["ATTACKS", "Byzantine", "a_little_is_enough", "byzantine", "corrupt", "delay", "inner_product", "label_flip",
           "mimic", "mistimed", "noise", "not_finite", "scaling", "sign_flip", "silence"]
