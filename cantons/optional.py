"""Packages that only some users need: each is an extra of ours, and is imported where it is used."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from cantons.errors import InputError


def optional_import(module: str, extra: str, user: str) -> ModuleType:
    """Import `module`, or say in one sentence what `user` needs and how to install it; without `extra`, by itself.

    >>> optional_import("nowhere.inside", "hdf5", user="this data")
    Traceback (most recent call last):
    cantons.errors.InputError: this data needs nowhere, which is not installed: pip install 'cantons[hdf5]'
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise  # it is there, and lacks something itself
        wanted = f"'cantons[{extra}]'" if extra else package
        raise InputError(f"{user} needs {package}, which is not installed: pip install {wanted}") from error
