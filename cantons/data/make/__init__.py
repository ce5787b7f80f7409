"""Owns: data that needs no file. May import: errors, memory, options, data/split."""
