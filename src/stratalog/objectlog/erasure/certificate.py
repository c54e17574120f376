"""The certificate of an erasure: what was taken out of a log, in a form that others can check.

    path      certificate/{id}.json
    fields    id, log, state, begun_us, first_offset, up_to, offsets, query, note, writer, then once
              it is known what goes: plan_id, tail, records, setsum_before, setsum_removed,
              setsum_after, collected, objects, foreign, and at the end: done_us, kept, swept,
              holders, versions, complete, reasons, sha3_256; format, write_id

It is written before anything changes, so that an erasure that was cut short can be finished:

    begun ──► erasing      before each attempt to publish: what goes, and its sums
    erasing ──► done       after the old objects were looked for
    done ──► done          if something stood against it: when it was checked again

``offsets`` are ranges, ``[start, limit)``. The query may name the person that is to be forgotten,
so only its salted hash is kept. ``sha3_256`` is the hash of everything else, by which an accidental
change is detected; it is no signature. Persisted: keep stable.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import ClassVar, Literal

import msgspec

from stratalog.errors import Corrupt, Invalid, StratalogError
from stratalog.indexset import IndexSet
from stratalog.objectlog.erasure.find_holders import Holder, Versions
from stratalog.objectlog.stored import Natural, StoredObject, decode_opened, open_certificate
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.setsum import Setsum
from stratalog.store import Document, Store, StoreLike, closed, open_store, read_versions

CERTIFICATE_PREFIX = "certificate/"

State = Literal["begun", "erasing", "done"]

TIMEOUT_S = 60.0
LIST_HINT = "`stratalog certificate list` shows them."

_ID = re.compile("[0-9a-f]{16}")
_PATH = re.compile(f"{CERTIFICATE_PREFIX}({_ID.pattern})[.]json")


class Certificate(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """One version of it."""

    what: ClassVar[str] = "certificate of an erasure"

    id: str
    log: str
    state: State
    begun_us: Natural
    first_offset: Natural
    up_to: Natural
    offsets: tuple[tuple[Natural, Natural], ...]
    query: str = ""
    note: str = ""
    writer: str = ""
    plan_id: str | None = None
    tail: Natural | None = None
    records: Natural | None = None
    setsum_before: Setsum | None = None
    setsum_removed: Setsum | None = None
    setsum_after: Setsum | None = None
    collected: Setsum | None = None
    objects: tuple[str, ...] = ()
    foreign: tuple[tuple[str, str], ...] = ()
    done_us: Natural | None = None
    kept: tuple[str, ...] = ()
    swept: Natural = 0
    holders: tuple[Holder, ...] = ()
    versions: Versions | None = None
    complete: bool | None = None
    reasons: tuple[str, ...] = ()
    sha3_256: str | None = None
    format: str | None = None
    write_id: str | None = None

    @property
    def path(self) -> str:
        return certificate_path(self.id)

    @property
    def erased(self) -> IndexSet:
        """The offsets that were to go."""
        return IndexSet(*(range(start, limit) for start, limit in self.offsets))

    @property
    def deleted(self) -> int:
        """How many objects with their records were deleted."""
        return len(self.objects) - len(self.kept)

    @property
    def balances(self) -> bool:
        """Whether what was there is what went and what stayed."""
        before, removed, after = self.setsum_before, self.setsum_removed, self.setsum_after
        if before is None or removed is None or after is None:
            return False
        return before == removed + after

    @property
    def digest(self) -> str:
        """The hash of everything else that it says."""
        bare = msgspec.structs.replace(self, sha3_256=None)
        return hashlib.sha3_256(bare.to_json()).hexdigest()

    def sealed_as(self, write_id: str | None) -> Certificate:
        """This as a new version, with its hash."""
        fresh = msgspec.structs.replace(self, write_id=write_id)
        return msgspec.structs.replace(fresh, sha3_256=fresh.digest)

    def is_about(self, query: str) -> bool:
        """Whether this is the query by which records were chosen."""
        return self.query == hash_of_query(self.id, query)


def hash_of_query(certificate_id: str, query: str) -> str:
    """Salted by the certificate, so that equal queries do not show as such."""
    text = f"{certificate_id}\0{query}"
    return hashlib.sha3_256(text.encode(errors="surrogatepass")).hexdigest()


def certificate_path(certificate_id: str) -> str:
    if _ID.fullmatch(certificate_id) is None:
        raise Invalid(f"not the id of a certificate: {certificate_id!r}", hint=LIST_HINT)
    return f"{CERTIFICATE_PREFIX}{certificate_id}.json"


def decode_certificate(data: bytes, path: str | None = None) -> Certificate:
    """From a file that somebody has kept, which may say anything."""
    found = decode_opened(Certificate, data, path)
    if _ID.fullmatch(found.id) is None or any(start >= limit for start, limit in found.offsets):
        raise Corrupt("not a certificate of an erasure", path=path)
    return found


def certificate_document(
    store: Store, certificate_id: str, runtime: Runtime, timeout_s: float
) -> Document[Certificate]:
    """The certificate of this id, to be read and changed."""
    return Document(
        store,
        certificate_path(certificate_id),
        _decode_stored,
        label=f"certificate {certificate_id}",
        runtime=runtime,
        timeout_s=timeout_s,
        encode=_encode,
        hint_if_missing=LIST_HINT,
    )


async def load_certificate(url: StoreLike, certificate_id: str) -> Certificate:
    """The certificate of this id. ``NotFound`` if the log has none."""
    document = certificate_document(open_store(url), certificate_id, DEFAULT_RUNTIME, TIMEOUT_S)
    return (await document.load()).value


async def list_certificates(
    url: StoreLike, *, on_damage: Callable[[StratalogError], None] | None = None
) -> list[Certificate]:
    """All certificates of a log, oldest first.

    A certificate that cannot be read is raised, or reported to ``on_damage`` and passed over.
    """
    found = await read_versions(
        open_store(url), CERTIFICATE_PREFIX, _decode_stored, _id_in, on_damage=on_damage
    )
    certificates = [version.value for _, version in found]
    return sorted(certificates, key=lambda each: (each.begun_us, each.id))


def _id_in(path: str) -> str | None:
    found = _PATH.fullmatch(path)
    return found and found.group(1)


def _encode(certificate: Certificate) -> bytes:
    """The bytes to put. One that is done has a hash of its own already."""
    return certificate.to_json() if certificate.state == "done" else closed(certificate)


def _decode_stored(data: bytes, path: str) -> Certificate:
    found, expected = decode_certificate(open_certificate(data, path), path), _id_in(path)
    if found.id != expected:
        raise Corrupt(
            f"{path} is another certificate", path=path, expected=expected, actual=found.id
        )
    return found
