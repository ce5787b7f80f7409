"""Owns: data that needs no file. May import: errors, data/split."""
