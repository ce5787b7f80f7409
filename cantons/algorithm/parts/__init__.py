"""Owns: what several methods are made of. May import: aggregate, options, protocol, errors; no method."""
