"""Owns: one file per format of files. May import: errors, memory, optional, options, data/prepare, data/split."""
