"""Owns: changes to a whole federation before training. May import: errors, options, protocol."""
