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
from stratalog.indexset import IndexSet
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
Finding = tuple[Outcome, str]
"""What became of a check, and why."""


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
    findings = {"unchanged": _unchanged(certificate), "balance": _balance(certificate)}
    if query is not None:
        findings["query"] = _query(certificate, query)
    if url is not None:
        findings |= await _against_log(certificate, url, runtime)
    checks = (CertificateCheck(name, *found) for name, found in findings.items())
    return CertificateReport(certificate, tuple(checks))


def _unchanged(certificate: Certificate) -> Finding:
    if certificate.state != "done":
        return "broken", "the erasure was not finished: erase again"
    if certificate.digest != certificate.sha3_256:
        return "broken", "it says something else than when it was written"
    return "holds", "it hashes to what it says"


def _balance(certificate: Certificate) -> Finding:
    if certificate.balances:
        return "holds", "what was there is what went and what stayed"
    return "broken", "what went and what stayed is not what was there"


def _query(certificate: Certificate, query: str) -> Finding:
    if certificate.is_about(query):
        return "holds", "its hash is that of the query"
    return "broken", "it is about another query"


async def _against_log(
    certificate: Certificate, url: StoreLike, runtime: Runtime
) -> dict[str, Finding]:
    store = PatientStore(open_store(url), runtime, CHECK_TIMEOUT_S)
    tree = Tree(store, CACHE_BYTES)
    found = await present(tree, store, certificate.erased)
    deleted = await _deleted(certificate, store)
    newer = await _newer(certificate, store)
    return {
        "log": _place(certificate, store.url),
        **({} if newer is None else {"version": newer}),
        "absent": _absent(found.offsets),
        "deleted": deleted,
        "sums": await _sums(certificate, found.manifest, tree),
    }


def _absent(there: IndexSet) -> Finding:
    if there:
        return "broken", f"{len(there)} of the records are there, offset {there.first} among them"
    return "holds", "the log has none of the records"


async def _deleted(certificate: Certificate, store: Store) -> Finding:
    kept = await stored_of(store, certificate.objects)
    surprising = [path for path in kept if path not in certificate.kept]
    if surprising:
        return "broken", f"{surprising[0]} is stored"
    if kept:
        return "unknown", f"{_objects(kept)} still there, as the certificate says"
    return "holds", f"{_objects(certificate.objects)} gone"


def _place(certificate: Certificate, url: str) -> Finding:
    if certificate.log == redact(url):
        return "holds", "it is about this log"
    return "unknown", f"it is about {certificate.log}: this may be the same log by another name"


async def _newer(certificate: Certificate, store: Store) -> Finding | None:
    """Reported if the log has another version: what was not complete may be complete there."""
    try:
        stored = await load_certificate(store, certificate.id)
    except NotFound:
        return "unknown", "the log does not have it: this is another log, or it was deleted"
    if stored.write_id == certificate.write_id:
        return None
    return "unknown", "the log has a newer version: `stratalog certificate show` prints it"


async def _sums(certificate: Certificate, manifest: Manifest, tree: Tree) -> Finding:
    """What stayed can be compared only as long as nothing else has left the log."""
    tail = certificate.tail
    if tail is None or manifest.tail.offset < tail:
        return "broken", "this is another log, or an older one"
    if manifest.collected_sum != certificate.collected:
        return "unknown", "more has left the log since, so that what stayed cannot be compared"
    total = await _sum_before(manifest.entries, tail, tree)
    if total is None:
        explanation = "the log was rewritten since, so what stayed cannot be told from what came"
        return "unknown", explanation
    if total != certificate.setsum_after:
        return "broken", "the log adds up to something else"
    return "holds", "the log adds up to what stayed; `stratalog scrub` hashes it all"


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
