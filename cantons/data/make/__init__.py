"""Owns: data that needs no file. May import: errors, options, data/split."""
