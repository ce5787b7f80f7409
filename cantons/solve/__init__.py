"""Owns: solvers of small mathematical problems, which know no learning. May import: protocol, errors."""
