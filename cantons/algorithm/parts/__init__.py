"""Owns: what methods are made of. May import: aggregate, problem, solve, options, ranges, protocol, errors."""
