"""Bugs on purpose in stages and sinks, each in one named way, from outside.

The checks are only worth something if they notice these. Nothing here is shipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from simulation.planting import plant
from stratalog.objectlog.bulk import commit as sinking_module
from stratalog.objectlog.bulk.commit import Linked, _Linking
from stratalog.objectlog.bulk.upload import UploadedFragment
from stratalog.objectlog.holds import upload_guard as guard_module
from stratalog.objectlog.holds.upload_guard import StoredUploadGuard, UploadGuardStore
from stratalog.objectlog.stored.fragment import Fragment
from stratalog.objectlog.stored.manifest import Manifest, load_manifest
from stratalog.objectlog.tree import settle as settle_module
from stratalog.objectlog.tree.amend_manifest import amend
from stratalog.objectlog.tree.settle import Verdict
from stratalog.store.cas import Patience


@contextmanager
def repeated_batch_not_recognised() -> Iterator[None]:
    """Nobody looks whether a batch is in the log."""
    with plant(sinking_module, "is_linked", lambda manifest, batch: False):
        yield


@contextmanager
def batch_noted_by_a_second_put() -> Iterator[None]:
    """Between the two a driver may die."""
    run = _Linking.run

    async def in_two_steps(self: _Linking) -> Linked:
        manifest, _ = await load_manifest(self._reads)
        if self._batch is None or sinking_module.is_linked(manifest, self._batch):
            return await run(self)
        batch, self._batch = self._batch, None
        linked = await run(self)
        write_id = self._runtime.new_id()

        def note(manifest: Manifest) -> Manifest | None:
            if manifest.write_id == write_id or sinking_module.is_linked(manifest, batch):
                return None
            sinks = sinking_module.noted(manifest, batch)
            return msgspec.structs.replace(manifest, sinks=sinks, write_id=write_id)

        await amend(self._reads, note, Patience(self._runtime, self._timeout_s))
        return linked

    with plant(_Linking, "run", in_two_steps):
        yield


@contextmanager
def older_batch_noted() -> Iterator[None]:
    """Only the very last batch is recognised, so a slow driver repeats the one before."""

    def is_last(manifest: Manifest, batch: Any) -> bool:
        return bool((manifest.sinks or {}).get(batch.query) == batch.number)

    with plant(sinking_module, "is_linked", is_last):
        yield


@contextmanager
def stages_not_looked_up() -> Iterator[None]:
    """Uploads of an earlier epoch are linked although a sweep may have taken them."""

    async def nothing(self: _Linking, manifest: Manifest) -> None:
        return None

    with plant(_Linking, "_check_guards", nothing):
        yield


@contextmanager
def stages_looked_up_before_the_manifest_is_read() -> Iterator[None]:
    """A stage is revoked in between."""
    run = _Linking.run
    check = _Linking._check_guards

    async def early(self: _Linking) -> Linked:
        manifest, _ = await load_manifest(self._reads)
        await check(self, msgspec.structs.replace(manifest, sweep_epoch=0))
        return await run(self)

    async def nothing(self: _Linking, manifest: Manifest) -> None:
        return None

    with plant(_Linking, "run", early), plant(_Linking, "_check_guards", nothing):
        yield


@contextmanager
def revoked_stage_taken_for_live() -> Iterator[None]:
    """It is enough that the stage is stored."""

    class Hopeful(UploadGuardStore):
        async def load(self, incarnation: str) -> StoredUploadGuard:
            return msgspec.structs.replace(await super().load(incarnation), state="live")

    with plant(sinking_module, "UploadGuardStore", Hopeful):
        yield


@contextmanager
def stage_over_before_its_batch_is_linked() -> Iterator[None]:
    """The sweep releases a stage as soon as the batch before its own is there."""

    def early(self: StoredUploadGuard, manifest: Manifest, live: Collection[str]) -> bool:
        if self.query is None or self.batch is None:
            return False
        return (manifest.sinks or {}).get(self.query, -1) >= self.batch - 1

    async def unnoticed(self: _Linking, manifest: Manifest) -> None:
        return None

    with (
        plant(guard_module.StoredUploadGuard, "is_over", early),
        plant(_Linking, "_check_guards", unnoticed),
    ):
        yield


@contextmanager
def lost_answer_taken_for_a_refusal() -> Iterator[None]:
    """A put that landed without an answer is sent again, at other positions."""

    def did_not(*_: object) -> Verdict:
        return Verdict.DID_NOT

    with plant(settle_module, "judge", did_not), plant(sinking_module, "judge", did_not):
        yield


@contextmanager
def partitions_in_the_order_of_their_names() -> Iterator[None]:
    """The order of the list is lost."""
    placed = sinking_module.placed

    def sorted_first(
        staged: Sequence[UploadedFragment], manifest: Manifest, now_us: int
    ) -> list[Fragment]:
        return placed(sorted(staged, key=lambda each: each.path), manifest, now_us)

    with plant(sinking_module, "placed", sorted_first):
        yield


@contextmanager
def time_of_the_driver_alone() -> Iterator[None]:
    """A driver whose clock is late appends in the past."""
    placed = sinking_module.placed

    def by_its_clock(
        staged: Sequence[UploadedFragment], manifest: Manifest, now_us: int
    ) -> list[Fragment]:
        return [
            msgspec.structs.replace(
                each,
                start=msgspec.structs.replace(each.start, timestamp_us=now_us),
                limit=msgspec.structs.replace(each.limit, timestamp_us=now_us),
            )
            for each in placed(staged, manifest, now_us)
        ]

    with plant(sinking_module, "placed", by_its_clock):
        yield


PLANTED = (
    repeated_batch_not_recognised,
    batch_noted_by_a_second_put,
    older_batch_noted,
    stages_not_looked_up,
    stages_looked_up_before_the_manifest_is_read,
    revoked_stage_taken_for_live,
    stage_over_before_its_batch_is_linked,
    lost_answer_taken_for_a_refusal,
    partitions_in_the_order_of_their_names,
    time_of_the_driver_alone,
)
