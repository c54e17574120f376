"""Checking the certificate of an erasure: by itself, and against the log that it is about.

All checks need read access to the log, but for the first two, which need only the certificate.

    unchanged     it hashes to what it says
    balance       what was there = what went + what stayed
    log           it is about this log
    version       the log has no newer one (reported if it has)
    absent        the log has none of the records
    deleted       none of the old objects is stored
    sums          what stayed is still there, if nothing else has left the log since
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stratalog.errors import NotFound
from stratalog.objectlog.erasure.certificate import Certificate, load_certificate
from stratalog.objectlog.erasure.find_holders import present, stored_of
from stratalog.objectlog.options import MIB
from stratalog.objectlog.stored import Entry, Fragment, Manifest
from stratalog.objectlog.tree import Tree
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.setsum import EMPTY, Setsum
from stratalog.store import PatientStore, Store, StoreLike, open_store, redact

CHECK_TIMEOUT_S = 60.0
CACHE_BYTES = 8 * MIB

Outcome = Literal["holds", "broken", "unknown"]


@dataclass(frozen=True, slots=True)
class CertificateCheck:
    """One thing that a certificate says, and whether it is so."""

    name: str
    outcome: Outcome
    explanation: str


@dataclass(frozen=True, slots=True)
class CertificateReport:
    """What became of all checks."""

    certificate: Certificate
    checks: tuple[CertificateCheck, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against it."""
        return all(check.outcome != "broken" for check in self.checks)


async def verify_certificate(
    certificate: Certificate,
    url: StoreLike | None = None,
    *,
    query: str | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> CertificateReport:
    """Check a certificate, and with ``url`` the log that it is about.

    With ``query`` also whether it is about the records that this query chooses.
    """
    checks = [_unchanged(certificate), _balance(certificate)]
    if query is not None:
        is_about = certificate.is_about(query)
        explanation = "its hash is that of the query" if is_about else "it is about another query"
        checks.append(CertificateCheck("query", "holds" if is_about else "broken", explanation))
    if url is not None:
        checks += await _against_log(certificate, url, runtime)
    return CertificateReport(certificate, tuple(checks))


def _unchanged(certificate: Certificate) -> CertificateCheck:
    if certificate.state != "done":
        return CertificateCheck("unchanged", "broken", "the erasure was not finished: erase again")
    if certificate.digest != certificate.sha3_256:
        return CertificateCheck(
            "unchanged", "broken", "it says something else than when it was written"
        )
    return CertificateCheck("unchanged", "holds", "it hashes to what it says")


def _balance(certificate: Certificate) -> CertificateCheck:
    if certificate.balances:
        return CertificateCheck("balance", "holds", "what was there is what went and what stayed")
    return CertificateCheck("balance", "broken", "what went and what stayed is not what was there")


async def _against_log(
    certificate: Certificate, url: StoreLike, runtime: Runtime
) -> list[CertificateCheck]:
    store = PatientStore(open_store(url), runtime, CHECK_TIMEOUT_S)
    tree = Tree(store, CACHE_BYTES)
    found = await present(tree, store, certificate.erased)
    there = found.offsets
    if there:
        explanation = f"{len(there)} of the records are there, offset {there.first} among them"
        absent = CertificateCheck("absent", "broken", explanation)
    else:
        absent = CertificateCheck("absent", "holds", "the log has none of the records")
    kept = await stored_of(store, certificate.objects)
    surprising = [path for path in kept if path not in certificate.kept]
    if surprising:
        deleted = CertificateCheck("deleted", "broken", f"{surprising[0]} is stored")
    elif kept:
        deleted = CertificateCheck(
            "deleted", "unknown", f"{_objects(kept)} still there, as the certificate says"
        )
    else:
        deleted = CertificateCheck("deleted", "holds", f"{_objects(certificate.objects)} gone")
    return [
        _place(certificate, store.url),
        *await _newer(certificate, store),
        absent,
        deleted,
        await _sums(certificate, found.manifest, tree),
    ]


def _place(certificate: Certificate, url: str) -> CertificateCheck:
    if certificate.log == redact(url):
        return CertificateCheck("log", "holds", "it is about this log")
    explanation = f"it is about {certificate.log}: this may be the same log by another name"
    return CertificateCheck("log", "unknown", explanation)


async def _newer(certificate: Certificate, store: Store) -> list[CertificateCheck]:
    """Reported if the log has another version: what was not complete may be complete there."""
    try:
        stored = await load_certificate(store, certificate.id)
    except NotFound:
        explanation = "the log does not have it: this is another log, or it was deleted"
        return [CertificateCheck("version", "unknown", explanation)]
    if stored.write_id == certificate.write_id:
        return []
    explanation = "the log has a newer version: `stratalog certificate show` prints it"
    return [CertificateCheck("version", "unknown", explanation)]


async def _sums(certificate: Certificate, manifest: Manifest, tree: Tree) -> CertificateCheck:
    """What stayed can be compared only as long as nothing else has left the log."""
    tail = certificate.tail
    if tail is None or manifest.tail.offset < tail:
        return CertificateCheck("sums", "broken", "this is another log, or an older one")
    if manifest.collected_sum != certificate.collected:
        explanation = "more has left the log since, so that what stayed cannot be compared"
        return CertificateCheck("sums", "unknown", explanation)
    total = await _sum_before(manifest.entries, tail, tree)
    if total is None:
        explanation = "the log was rewritten since, so what stayed cannot be told from what came"
        return CertificateCheck("sums", "unknown", explanation)
    if total != certificate.setsum_after:
        return CertificateCheck("sums", "broken", "the log adds up to something else")
    explanation = "the log adds up to what stayed; `stratalog scrub` hashes it all"
    return CertificateCheck("sums", "holds", explanation)


async def _sum_before(entries: Sequence[Entry], tail: int, tree: Tree) -> Setsum | None:
    """What lies before an offset, or None if a fragment spans it."""
    total = EMPTY
    for entry in entries:
        if entry.limit.offset <= tail:
            total += entry.setsum
        elif entry.start.offset < tail:
            if isinstance(entry, Fragment):
                return None
            part = await _sum_before((await tree.snapshot(entry)).entries, tail, tree)
            if part is None:
                return None
            total += part
    return total


def _objects(paths: Sequence[str]) -> str:
    return "1 object is" if len(paths) == 1 else f"{len(paths)} objects are"
