"""Owns: networks as pure functions of a dict of arrays. May import: ranges, protocol, errors."""

from cantons.models.augment import AUGMENTATIONS, Augment, augmented, written_augment
from cantons.models.base import Architecture, Model, Named
from cantons.models.conv import cnn
from cantons.models.dense import linear, mlp
from cantons.models.named import ARCHITECTURES, architecture
from cantons.models.recurrent import gru
from cantons.models.resnet import resnet18
from cantons.models.text import embedding
from cantons.models.transformer import transformer

__all__ = ["ARCHITECTURES", "AUGMENTATIONS", "Architecture", "Augment", "Model", "Named", "architecture", "augmented",
           "cnn", "embedding", "gru", "linear", "mlp", "resnet18", "transformer", "written_augment"]
