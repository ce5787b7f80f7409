"""What all parts of the vocabulary are made of."""

from __future__ import annotations

from typing import Any

import jax

Array = jax.Array
PyTree = Any
Key = jax.Array
# What an algorithm chooses for itself: the two states, and what travels between them.
Server = Any
Client = Any
Message = Any
Upload = Any
Aggregate = Any
