"""A person confirms what cannot be undone."""

import sys

from stratalog.errors import Invalid, NotHappened


def require_terminal(refusal: str) -> None:
    """Refuse if standard input is no terminal, so that no person can be asked."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise Invalid(
            refusal, hint="Add --yes, or run the command on a terminal and answer its question."
        )


def confirm(word: str, *, purpose: str, otherwise: str) -> None:
    """Return only if the person types the word."""
    sys.stderr.write(f"Type {word} to {purpose}: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != word:
        raise NotHappened(otherwise, hint=f"Type {word} if you want it to be.")
