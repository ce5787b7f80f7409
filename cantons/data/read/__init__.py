"""Owns: a file per format. May import: errors, memory, optional, options, ranges, data/prepare, data/split."""
