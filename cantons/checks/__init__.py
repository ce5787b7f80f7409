"""Owns: the properties every algorithm must have, as checks. May import: everything but reporting and cli."""

from cantons.checks.contract import CHECKS, check, examine
from cantons.checks.finding import Finding, Findings

__all__ = ["CHECKS", "Finding", "Findings", "check", "examine"]
