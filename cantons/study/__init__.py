"""Owns: a whole experiment, from description to run folder. May import: everything but checks, report and cli."""
