"""Owns: parts of methods. May import: aggregate, problem, solve, map_batches, options, ranges, protocol, errors."""
