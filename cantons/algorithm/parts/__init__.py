"""Owns: what methods are made of, and no method. May import: aggregate, problem, options, ranges, protocol, errors."""
