"""Why it cannot be said that erased records are gone: what makes a certificate incomplete."""

from collections.abc import Sequence

from stratalog.objectlog.erasure.certificate import Versions
from stratalog.objectlog.erasure.find_holders import Holder, stored_of
from stratalog.store import Store, redact, sibling


async def logs_with(store: Store, foreign: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The logs that still have one of these objects of theirs."""
    found: list[str] = []
    for url in dict.fromkeys(base for base, _ in foreign):
        paths = [path for base, path in foreign if base == url]
        if await stored_of(sibling(store, url), paths):
            found.append(redact(url))
    return tuple(found)


async def versions_of(store: Store, path: str) -> Versions:
    """Whether the store keeps versions, judged by an object that was just written."""
    version = (await store.head(path)).version
    if version is None:
        return "none"
    return "unknown" if store.url.startswith("gs://") else "kept"


def reasons_against(
    kept: Sequence[str], owned: Sequence[str], holders: Sequence[Holder], versions: Versions
) -> tuple[str, ...]:
    """Why it cannot be said that the records are gone."""
    reasons = [f"still held by {holder}" for holder in holders]
    if kept:
        reasons.append(f"old objects are still there: {kept[0]}" + and_more(len(kept) - 1))
    reasons += [f"the log that this one was forked from still has them: {url}" for url in owned]
    if versions == "kept":
        reasons.append("the bucket keeps older versions of its objects, deleted ones too")
    if versions == "unknown":
        reasons.append("the store does not tell whether it keeps deleted objects")
    return tuple(reasons)


def and_more(count: int) -> str:
    return f", and {count} more" if count > 0 else ""
