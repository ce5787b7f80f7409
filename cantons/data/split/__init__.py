"""Owns: who gets which row, what is held out. May import: errors, memory, optional, options, protocol, data/prepare."""
