"""What the store under a simulation says when a put or a deletion breaks a promise."""

from __future__ import annotations


class PromiseBroken(AssertionError):
    """Something that no correct process does. ``rule`` names the promise."""

    def __init__(self, rule: str, explanation: str) -> None:
        super().__init__(f"{rule}: {explanation}")
        self.rule = rule


def promise(holds: bool, rule: str, explanation: str) -> None:
    if not holds:
        raise PromiseBroken(rule, explanation)
