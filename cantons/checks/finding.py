"""What a check has found, in sentences."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Failed(Exception):
    """A property does not hold; the message says what is wrong and what to change."""


class Skipped(Exception):
    """A property says nothing about this algorithm; the message says why."""


class Finding(NamedTuple):
    """What one check found."""

    check: str  # the property, as a sentence
    status: Literal["ok", "failed", "skipped"]
    sentence: str = ""  # what is wrong and what to change, or why nothing was checked

    def __str__(self) -> str:
        return f"{self.status:<8} {self.check}" + (f": {self.sentence}" if self.sentence else "")


class Findings(NamedTuple):
    """What all checks found about one algorithm.

    >>> print(Findings("sign_sgd", "a network", [Finding("it is pure", "ok")]))
    sign_sgd on a network
    ok       it is pure
    all 1 checks passed
    """

    algorithm: str
    example: str  # what it was checked on
    findings: list[Finding]

    @property
    def passed(self) -> bool:
        """Did no check fail?"""
        return not self.failures

    @property
    def failures(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.status == "failed"]

    @property
    def title(self) -> str:
        return f"{self.algorithm} on {self.example}"

    @property
    def verdict(self) -> str:
        """The last line: how many checks passed."""
        counts = {status: sum(finding.status == status for finding in self.findings)
                  for status in ("ok", "failed", "skipped")}
        if not counts["failed"] and not counts["skipped"]:
            return f"all {counts['ok']} checks passed"
        others = [f"{counts[status]} {status}" for status in ("failed", "skipped") if counts[status]]
        return f"{counts['ok']} of {len(self.findings)} checks passed, {', '.join(others)}"

    def __str__(self) -> str:
        return "\n".join([self.title, *map(str, self.findings), self.verdict])
