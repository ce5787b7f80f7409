"""Owns: one file per format, from a path to a federation. May import: errors, optional, data/prepare, data/split."""
