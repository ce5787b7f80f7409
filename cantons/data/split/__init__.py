"""Owns: who gets which row, and what is held out. May import: errors, optional, protocol, data/prepare."""
