"""What a query reads, and a hold on it: fragments by their entries, pinned before they are planned.

    read manifest ──► pin the stretch ──► plan from what the pin holds

So what is planned is what is held, whatever becomes of the log meanwhile. Spark does not say when a
query has ended, so a pin has an expiry; a caller that knows the end releases it early. A log that
wal3 wrote has no pins, since its collector would not heed them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TypeVar

from stratalog.errors import Conflict, Denied, NotFound, StratalogError, Trimmed
from stratalog.herd import is_name
from stratalog.objectlog.holds import Pin, PinStore
from stratalog.objectlog.stored import ByteCache, Entry, Fragment, Manifest, Snapshot, load_manifest
from stratalog.objectlog.tree import Tree, Window, missing
from stratalog.ordered import gather_bounded
from stratalog.pipeline.jobs import LogRef, check_alive, find_logs, has_lost_manifest, resolve
from stratalog.pipeline.read.splits import Part
from stratalog.pipeline.spark import below
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import PatientStore, Store, open_store

T = TypeVar("T")

PLAN_TIMEOUT_S = 60.0
PLANNING_CACHE_BYTES = 1 << 20
LOGS_AT_ONCE = 32
ATTEMPTS_MAX = 5
PIN_NOTE = "read by Spark"


@dataclass(frozen=True, slots=True)
class Planned:
    """What a query reads, and the pins that hold it."""

    parts: tuple[Part, ...] = ()
    pins: tuple[Pin, ...] = ()

    async def release(self) -> None:
        """Release the pins. One that cannot be released now expires."""
        await gather_bounded(self.pins, _release, LOGS_AT_ONCE)


@dataclass(frozen=True, slots=True)
class Hold:
    """How long what is planned is held, and under which name."""

    name: str
    expires_us: int

    @classmethod
    def lasting(cls, pin_s: float | None, name: str | None = None) -> Hold | None:
        """A hold of so many seconds under a name of its own. None for none."""
        if pin_s is None:
            return None
        expires_us = DEFAULT_RUNTIME.now_us() + int(pin_s * 1_000_000)
        return cls(name or f"spark_{DEFAULT_RUNTIME.new_id(16)}", expires_us)

    def named_for(self, attempt: int) -> Hold:
        """A name that was given up is not free before the next collection."""
        return self if attempt == 1 else replace(self, name=f"{self.name}_{attempt}")


async def plan_log(
    url: str, window: Window, hold: Hold | None, *, required_from: int = 0
) -> Planned:
    """The fragments of a log that overlap a window.

    ``Trimmed`` if the log does not have all from ``required_from`` on; with 0 it may begin later.
    """
    return await _planned(open_store(url), Part(url, (), window), hold, required_from)


async def plan_herd(
    root_url: str, logs: Sequence[str] | None, window: Window, hold: Hold | None
) -> Planned:
    """The same of the logs of a herd, or of those that are named or match a pattern.

    The window is about each of them; of a log that begins later, what is there is taken.
    """
    root = open_store(root_url)

    async def plan(ref: LogRef) -> Planned:
        found = ref
        try:
            found, store = await resolve(_patient(root), ref)
            url = below(root_url, f"logs/{found.log_id}")
            return await _planned(store, Part(url, (), window, found.name), hold, 0)
        except NotFound:  # dropped meanwhile, or not completed yet
            if found.log_id is not None and await has_lost_manifest(_patient(root), found):
                raise
            return Planned()

    refs = sorted(await _chosen(root, logs), key=lambda ref: ref.name or "")
    return _joined(await plan_together(refs, plan))


async def plan_together(
    items: Sequence[T], plan: Callable[[T], Awaitable[Planned]]
) -> list[Planned]:
    """What ``plan`` gives for each item, a few at a time. If one fails, all pins are released."""

    made: list[Planned] = []

    async def one(item: T) -> Planned:
        made.append(planned := await plan(item))
        return planned

    try:
        return await gather_bounded(items, one, LOGS_AT_ONCE)
    except BaseException:  # also if the caller is cancelled
        await _joined(made).release()
        raise


async def part_of(
    store: Store, url: str, manifest: Manifest, window: Window, *, log: str | None = None
) -> Part:
    """The fragments of a log that overlap a window. Reads only the nodes that lead to them.

    ``url`` is where tasks find the log; ``store`` is the same place, open in this process.
    """
    tree = Tree(store, ByteCache[Snapshot](PLANNING_CACHE_BYTES))
    return await _filled(Part(url, (), window, log), tree, manifest.entries, window)


async def _chosen(root: Store, logs: Sequence[str] | None) -> list[LogRef]:
    """The logs that were asked for. ``NotFound`` if a name or a pattern has none."""
    if logs is None:
        return await find_logs(root)
    names = [each for each in logs if is_name(each)]
    patterns = [each for each in logs if not is_name(each)]
    found = {ref.name: ref for ref in await find_logs(root, names=names)} if names else {}
    listed = await find_logs(root) if patterns else []
    for pattern in patterns:
        matching = [ref for ref in listed if fnmatchcase(ref.name or "", pattern)]
        if not matching:
            raise NotFound(
                f"no log of the herd at {root.url} matches {pattern!r}",
                hint="List them: `stratalog herd list`.",
            )
        for ref in matching:
            found.setdefault(ref.name, ref)
    return [*found.values()]


async def _planned(store: Store, part: Part, hold: Hold | None, required_from: int) -> Planned:
    """The part with its fragments, pinned unless there is no ``hold`` or nothing to hold."""
    store = _patient(store)
    tree = Tree(store, ByteCache[Snapshot](PLANNING_CACHE_BYTES))
    attempt = 0
    while True:
        attempt += 1
        manifest, _ = await load_manifest(store)
        _check(manifest, store.url, required_from)
        window = _inside(manifest, part.window)
        try:
            if hold is None or not manifest.is_ours:
                return Planned((await _filled(part, tree, manifest.entries, window),))
            stretch = await _stretch(tree, manifest, window)
            if stretch is None:
                return Planned((part,))
            pin = await _pinned(store, stretch, hold.named_for(attempt))
            return await _planned_from(pin, part, tree, window)
        except (Trimmed, Conflict, NotFound) as error:  # collected or rewritten just now
            if attempt == ATTEMPTS_MAX:
                raise missing(error.path) if isinstance(error, NotFound) else error from None


def _check(manifest: Manifest, url: str, required_from: int) -> None:
    check_alive(manifest, f"at {url}")
    first = manifest.first_offset
    if 0 < required_from < first:
        raise Trimmed(
            f"records {required_from} to {first - 1} of the log at {url} were collected",
            first_offset=first,
        )


def _inside(manifest: Manifest, window: Window) -> Window:
    """The part of a window that the log has."""
    tail = manifest.tail.offset
    return replace(
        window,
        from_offset=max(window.from_offset, manifest.first_offset),
        to_offset=tail if window.to_offset is None else min(window.to_offset, tail),
    )


async def _planned_from(pin: Pin, part: Part, tree: Tree, window: Window) -> Planned:
    try:
        return Planned((await _filled(part, tree, pin.entries, window),), (pin,))
    except BaseException:
        await _release(pin)
        raise


async def _filled(part: Part, tree: Tree, entries: Iterable[Entry], window: Window) -> Part:
    return replace(part, fragments=await _found(tree, entries, window))


async def _stretch(tree: Tree, manifest: Manifest, window: Window) -> tuple[int, int] | None:
    """The offsets that a window is about. None if there is nothing."""
    low, high = window.from_offset, window.to_offset or 0
    if window.from_timestamp_us is not None or window.to_timestamp_us is not None:
        fragments = await _found(tree, manifest.entries, window)
        if not fragments:
            return None
        low = max(low, fragments[0].start.offset)
        high = min(high, fragments[-1].limit.offset)
    return (low, high) if low < high else None


async def _pinned(store: Store, stretch: tuple[int, int], hold: Hold) -> Pin:
    try:
        return await PinStore(store).create(
            hold.name, *stretch, note=PIN_NOTE, expires_us=hold.expires_us
        )
    except Denied as error:
        raise Denied(
            f"the log cannot be pinned while it is read: {error}",
            path=error.path,
            hint='Read without a pin: the option pin="false", or pin_s=None. Or allow pins '
            "(docs/permissions.md).",
        ) from None


async def _found(tree: Tree, entries: Iterable[Entry], window: Window) -> tuple[Fragment, ...]:
    async with contextlib.aclosing(tree.fragments(entries, window.overlaps)) as walk:
        return tuple([fragment async for fragment in walk])


async def _release(pin: Pin) -> None:
    with contextlib.suppress(StratalogError):
        await pin.release()


def _joined(planned: Sequence[Planned]) -> Planned:
    return Planned(
        tuple(part for each in planned for part in each.parts),
        tuple(pin for each in planned for pin in each.pins),
    )


def _patient(store: Store) -> PatientStore:
    return PatientStore(store, DEFAULT_RUNTIME, PLAN_TIMEOUT_S)
