"""Packages that only some users need."""

from __future__ import annotations

import importlib
from types import ModuleType

from cantons.errors import InputError


def needed(module: str, extra: str) -> ModuleType:
    """The module, or one sentence that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(f"this data needs {package}, which is not installed: "
                         f"pip install 'cantons[{extra}]'") from error
