"""The digest in an entry: of the object that it links, computed from the bytes that were put.

    xxh3       XXH3-128 of the stored object, 32 hex digits
    xxh3_of    which object: the first 8 hex digits of the same hash of its path

The sum of an entry covers its records. The digest covers every byte, also those that are no record:
statistics and page headers of a fragment, times and sizes in a snapshot. So bytes are compared
before anything in them is believed.

An entry without these fields was made by software of format 1.0 or by wal3, and its object is
checked by its records alone. Software of 1.0 also keeps the fields, unknown to it, when it lets an
entry link another object: the first half of a fragment in a fork, or a node that it has repaired.
That object has another path, so ``xxh3_of`` does not fit it, and the entry counts as one without a
digest. Marks of two paths differ in many digits, so a difference of a single one is damage.
Persisted: keep stable.
"""

from typing import Any, Protocol, TypeVar, cast

import msgspec

from stratalog.errors import Corrupt
from stratalog.hashing import digest_of

MARK_DIGITS = 8


class Linking(Protocol):
    """An entry that links an object."""

    @property
    def path(self) -> str: ...

    @property
    def xxh3(self) -> str | None: ...

    @property
    def xxh3_of(self) -> str | None: ...


L = TypeVar("L", bound=Linking)


def with_digest(entry: L, xxh3: str | None) -> L:
    """The entry with the digest of the object at its path. None if that is not known."""
    mark = None if xxh3 is None else _mark_of(entry.path)
    return cast(L, msgspec.structs.replace(cast(Any, entry), xxh3=xxh3, xxh3_of=mark))


def promised_digest(entry: Linking) -> str | None:
    """The digest of the object that an entry links, or None if it promises none.

    ``Corrupt`` if what it says of its digest is damaged.
    """
    if entry.xxh3 is None and entry.xxh3_of is None:
        return None
    mark = _mark_of(entry.path)
    if entry.xxh3_of == mark and entry.xxh3 is not None:
        return entry.xxh3
    is_whole = entry.xxh3 is not None and entry.xxh3_of is not None
    if is_whole and is_of_another(entry.xxh3_of or "", mark):
        return None
    raise Corrupt(
        f"the digest in the entry of {entry.path} is damaged",
        path=entry.path,
        expected=mark,
        actual=entry.xxh3_of,
    )


def check_bytes(data: bytes, entry: Linking) -> bool:
    """Refuse bytes that are not those that were put. False if the entry does not tell."""
    promised = promised_digest(entry)
    if promised is None:
        return False
    found = digest_of(data)
    if found != promised:
        raise Corrupt(
            f"{entry.path} does not hold the bytes that were stored",
            path=entry.path,
            expected=promised,
            actual=found,
        )
    return True


def is_of_another(found: str, expected: str) -> bool:
    """Whether two random names differ as much as two do, and not by a single digit."""
    differing = sum(a != b for a, b in zip(found, expected, strict=False))
    return differing + abs(len(found) - len(expected)) > 1


def _mark_of(path: str) -> str:
    return digest_of(path.encode(errors="surrogatepass"))[:MARK_DIGITS]
