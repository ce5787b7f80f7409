"""Owns: a whole experiment, from description to run folder. May import: everything but checks, reporting and cli."""
