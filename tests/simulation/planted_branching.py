"""Bugs on purpose in seals, pins, forks and destruction, each in one named way, from outside.

The checks are only worth something if they notice these. Nothing here is shipped. Each docstring
says which promise of the store or of the end it breaks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from simulation import branching
from simulation.planting import plant
from stratalog.objectlog.append.committer import CommitOutcome, Committer
from stratalog.objectlog.branch import destroy_log as destroy_module
from stratalog.objectlog.branch.fork_log import _Fork
from stratalog.objectlog.branch.seal_log import SEAL_TIMEOUT_S, Sealer
from stratalog.objectlog.collection import collector as collector_module
from stratalog.objectlog.collection.collector import Collector
from stratalog.objectlog.holds.fork_note import ForkNote, abort_fork, detach_fork, note_of
from stratalog.objectlog.holds.pin import Pin, Pins, PinStore
from stratalog.objectlog.stored.fragment import Fragment
from stratalog.objectlog.stored.manifest import Manifest, load_any_manifest, load_manifest
from stratalog.objectlog.stored.seal import Link, Seal, as_fields, seal_of
from stratalog.objectlog.stored.snapshot import Entry
from stratalog.objectlog.tree.amend_manifest import amend
from stratalog.objectlog.tree.seek_window import Window
from stratalog.runtime import Runtime
from stratalog.store.cas import Overtaken, Patience
from stratalog.store.protocol import Store


@contextmanager
def seal_ignored_on_rebase() -> Iterator[None]:
    """A writer that finds a newer manifest appends to it, sealed or not: ``sealed``."""
    after_refusal = Committer._after_refusal

    async def blind(
        self: Committer, refusal: Overtaken, fragments: Sequence[Fragment]
    ) -> CommitOutcome | None:
        outcome = await after_refusal(self, refusal, fragments)
        self.manifest = msgspec.structs.replace(self.manifest, seal=None)
        return outcome

    with plant(Committer, "_after_refusal", blind):
        yield


@contextmanager
def two_successors() -> Iterator[None]:
    """Who migrates a log that has a successor names another one: ``sealed``."""

    async def renamed(self: Sealer, note: str, successor: Link | None) -> Manifest:
        def change(manifest: Manifest) -> Manifest | None:
            before = seal_of(manifest)
            if before is not None and successor is None:
                return None
            new = Seal(sealed_us=self._runtime.now_us(), writer=self._writer, note=note)
            after = msgspec.structs.replace(before or new, successor=successor)
            if before == after:
                return None
            return msgspec.structs.replace(
                manifest, seal=as_fields(after), write_id=self._runtime.new_id()
            )

        return await amend(self._store, change, Patience(self._runtime, SEAL_TIMEOUT_S))

    with plant(Sealer, "_sealed", renamed):
        yield


@contextmanager
def pin_without_looking_again() -> Iterator[None]:
    """A pin counts as soon as it is written, whatever is being collected: ``pinned``."""

    async def trusting(_self: PinStore, pin: Pin) -> Pin:
        return pin

    with plant(PinStore, "_confirm", trusting):
        yield


@contextmanager
def pin_that_only_moves_the_cut() -> Iterator[None]:
    """A pin counts as one more cursor, and what it points to is not looked at: ``pinned``."""
    preview = Collector.preview

    async def cut_lower(self: Collector, cut_off: int | None = None) -> collector_module.Outlook:
        pins = await self._pins.list()
        return await preview(self, min([pin.from_offset for pin in pins], default=cut_off))

    async def not_held(self: PinStore) -> tuple[Pins, Pins]:
        return [], [pin for pin in await self.list_all() if pin._stored.released]

    with (
        plant(Collector, "preview", cut_lower),
        plant(PinStore, "release_expired", not_held),
    ):
        yield


@contextmanager
def fork_opened_before_its_pin() -> Iterator[None]:
    """A fork links what nobody holds for it yet: ``forked``."""

    async def linked(self: _Fork, note: ForkNote) -> tuple[ForkNote, Sequence[Entry]]:
        source, _ = await load_manifest(self._source)
        window = Window(source.first_offset, note.at)
        return note, [entry for entry in source.entries if window.overlaps(entry)]

    async def opened(self: _Fork, note: ForkNote, held: Sequence[Entry]) -> ForkNote | None:
        found = await open_(self, note, held)
        if held:
            pins = PinStore(self._source, runtime=self._runtime)
            await pins.create(note.pin, held[0].start.offset, note.at)
        return found

    open_ = _Fork._open
    with plant(_Fork, "_held", linked), plant(_Fork, "_open", opened):
        yield


@contextmanager
def orphaned_pin_removed_too_early() -> Iterator[None]:
    """The pin of a fork that is not open yet goes before the fork is given up: ``forked``."""

    async def hasty(target: Store, *, runtime: Runtime) -> None:
        note = note_of((await load_any_manifest(target))[0])
        if note is not None and note.state == "forking":
            await note.release_source(target, runtime)
        await abort_fork(target, runtime=runtime)

    with (
        plant(branching, "abort_fork", hasty),
        plant(destroy_module, "abort_fork", hasty),
    ):
        yield


@contextmanager
def source_destroyed_under_a_fork() -> Iterator[None]:
    """A log is destroyed although it is pinned: ``reached`` of its fork, or ``pinned``."""

    async def ruthless(_self: object) -> None:
        """Nobody is asked."""

    with plant(destroy_module._Destruction, "_refuse_pins", ruthless):
        yield


@contextmanager
def expiry_trusted_for_safety() -> Iterator[None]:
    """A pin whose expiry is past by somebody's clock is passed over, not released: ``pinned``."""

    async def by_the_clock(self: PinStore) -> tuple[Pins, Pins]:
        now_us = self._runtime.now_us()
        pins = await self.list_all()
        held = [p for p in pins if not p._stored.released and not p._stored.is_past(now_us)]
        return held, [pin for pin in pins if pin._stored.released]

    with plant(PinStore, "release_expired", by_the_clock):
        yield


@contextmanager
def fork_detached_while_it_is_pinned() -> Iterator[None]:
    """A fork lets go of its source although a pin of its own reaches there: ``forked``."""

    async def nobody(_self: PinStore) -> Pins:
        return []

    async def careless(store: Store, *, runtime: Runtime) -> bool:
        with plant(PinStore, "list_all", nobody):
            return await detach_fork(store, runtime=runtime)

    with plant(collector_module, "detach_fork", careless):
        yield


PLANTED = (
    seal_ignored_on_rebase,
    two_successors,
    pin_without_looking_again,
    pin_that_only_moves_the_cut,
    fork_opened_before_its_pin,
    orphaned_pin_removed_too_early,
    source_destroyed_under_a_fork,
    expiry_trusted_for_safety,
    fork_detached_while_it_is_pinned,
)
