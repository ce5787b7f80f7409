"""Owns: a whole experiment, from its description to its run folder. May import: everything but report and cli."""
