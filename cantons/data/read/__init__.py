"""Owns: one file per format of files. May import: errors, optional, options, data/prepare, data/split."""
