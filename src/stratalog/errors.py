"""Every error a caller can meet, grouped by what the caller does about it.

    StratalogError
    ├── NotHappened      it did not happen; nothing was changed
    │   ├── Conflict     the state was not what you expected: refresh, maybe try again
    │   ├── Fenced       another writer took over: stop, or open a new writer
    │   ├── Sealed       the log takes no more records: follow its successor
    │   └── Full         back-pressure: slow down, then try again
    ├── Unknown          it may have happened: read before you try again
    ├── Trimmed          the records are gone on purpose: continue at ``first_offset``
    ├── Unavailable      the store does not answer: retry later
    ├── NotFound         there is nothing under this name
    ├── Exists           there is already something under this name
    ├── Denied           credentials or permissions are missing, or a policy does what it may not
    ├── Closed           this object was closed: open a new one
    ├── Corrupt          the stored bytes are wrong: alarm a person
    └── Invalid          the call itself is wrong: fix it

``Unknown`` is the only error of an append that leaves its outcome open. After any other error
the append did not happen.

``kind`` is stable and meant for programs; ``hint`` says the next step and is meant for people.
``expected`` and ``actual`` carry the values that disagreed, ``path`` the object concerned.
"""

from typing import Any, ClassVar, Self


class StratalogError(Exception):
    """The base of all errors of this library."""

    kind: ClassVar[str] = "error"
    default_hint: ClassVar[str] = "See the message for what went wrong."

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        path: str | None = None,
        expected: object = None,
        actual: object = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint if hint is not None else self.default_hint
        self.path = path
        self.expected = expected
        self.actual = actual

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message), self.__dict__)

    def copy(self) -> Self:
        """A fresh instance to raise to another waiter, so that tracebacks do not pile up."""
        twin = type(self).__new__(type(self), self.message)
        twin.__dict__.update(self.__dict__)
        return twin


def _rebuild(cls: type[StratalogError], message: str) -> StratalogError:
    """Without ``__init__``, whose parameters differ between the kinds."""
    return cls.__new__(cls, message)


class NotHappened(StratalogError):
    """The change did not happen and never will."""

    kind = "not-happened"
    default_hint = "Nothing was changed. Try again when the cause is gone."


class Conflict(NotHappened):
    """The state was not the expected one. ``actual`` has what was found."""

    kind = "conflict"
    default_hint = "Somebody else changed it first. Load the current state, then decide again."


class Fenced(NotHappened):
    """Another writer moved the tail of the log."""

    kind = "fenced"
    default_hint = (
        "Another writer took over. Stop, or open a new writer; "
        'with WriterOptions(on_fenced="reopen") a writer does that by itself.'
    )


class Sealed(NotHappened):
    """The log was sealed and takes no more records."""

    kind = "sealed"
    default_hint = "It takes no more records. `stratalog migrate` goes on elsewhere."


class Full(NotHappened):
    """The writer holds as much as it may hold."""

    kind = "full"
    default_hint = "Wait with `await log.drain()`, or give the writer a larger queue."


class Unknown(StratalogError):
    """The change may have happened, or may still happen."""

    kind = "unknown"
    default_hint = "It may have happened. Open the log again and look before you repeat it."


class Trimmed(StratalogError):
    """The records asked for were removed from the log on purpose."""

    kind = "trimmed"
    default_hint = "Continue at the log's first offset."

    def __init__(self, message: str, *, first_offset: int = 1, hint: str | None = None) -> None:
        super().__init__(
            message, hint=hint or f"Continue at offset {first_offset}.", actual=first_offset
        )
        self.first_offset = first_offset


class Unavailable(StratalogError):
    """The store did not answer, or answered that it cannot serve now."""

    kind = "unavailable"
    default_hint = "Check the network and the endpoint, then retry later."


class NotFound(StratalogError):
    """There is nothing under this name."""

    kind = "not-found"
    default_hint = "Check the name, or create it first."


class Exists(StratalogError):
    """There is already something under this name."""

    kind = "exists"
    default_hint = "Choose another name, or use what is there."


class Denied(StratalogError):
    """The store refused the credentials, or they lack a permission. Or the SQL of a stored policy
    does more than it may: ``actual`` names it."""

    kind = "denied"
    default_hint = "Check the credentials and their permissions (docs/permissions.md)."


class Closed(StratalogError):
    """The object was closed before this call."""

    kind = "closed"
    default_hint = "Open a new one."


class Corrupt(StratalogError):
    """Stored bytes are not what was written. ``path`` names the object."""

    kind = "corrupt"
    default_hint = "Do not delete anything. Keep the object and find out who changed it."


class Invalid(StratalogError):
    """The call itself is wrong and will not succeed when repeated."""

    kind = "invalid"
    default_hint = "Change what the message names. Repeating the call will not help."
