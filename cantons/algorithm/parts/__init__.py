"""Owns: what several methods are made of, and no method. May import: aggregate, options, ranges, protocol, errors."""
