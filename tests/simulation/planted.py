"""Bugs on purpose: each breaks the product in one named way, from outside.

The checks are only worth something if they notice these. Nothing here is shipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from simulation.planting import plant
from stratalog.errors import Exists, StratalogError, Unknown
from stratalog.objectlog.append import committer as committer_module
from stratalog.objectlog.append import fold_task as fold_task_module
from stratalog.objectlog.append import uploader as uploader_module
from stratalog.objectlog.append.committer import CommitOutcome, Committer, Upload
from stratalog.objectlog.append.group_commit import GroupCommit
from stratalog.objectlog.append.units import Unit, UnitsUnderWay
from stratalog.objectlog.stored import names as names_module
from stratalog.objectlog.stored.fragment import Fragment
from stratalog.objectlog.stored.manifest import Manifest
from stratalog.objectlog.tree import settle as settle_module
from stratalog.objectlog.tree.link_fragments import link
from stratalog.objectlog.tree.settle import Verdict
from stratalog.runtime import Runtime
from stratalog.store.cas import Landed, Overtaken, Patience, put_once, swap
from stratalog.store.protocol import Blob, Store


@contextmanager
def acknowledge_before_the_manifest() -> Iterator[None]:
    """Callers hear "done" when the fragment is stored, not when it is linked."""
    commit = GroupCommit._commit

    async def hasty(self: GroupCommit, group: list[Unit]) -> None:
        for unit in group:
            offset = unit.drafts[0].first_offset
            for submission in unit.submissions:
                if not submission.future.done():
                    submission.succeed(offset, unit.timestamp_us)
                offset += len(submission.bodies)
        await commit(self, group)

    with plant(GroupCommit, "_commit", hasty):
        yield


@contextmanager
def ignore_a_lost_swap() -> Iterator[None]:
    """A refused manifest put counts as done."""

    async def trusting(
        store: Store,
        path: str,
        data: bytes,
        etag: str,
        is_ours: Callable[[Blob], bool],
        patience: Patience,
    ) -> Landed | Overtaken:
        settled = await swap(store, path, data, etag, is_ours, patience)
        if isinstance(settled, Overtaken) and settled.current is not None:
            return Landed(settled.current.etag)
        return settled

    with plant(settle_module, "swap", trusting):
        yield


@contextmanager
def believe_exists() -> Iterator[None]:
    """ "Exists" is taken for success without looking."""

    async def gullible(
        store: Store, new_path: Callable[[], str], data: bytes, patience: Patience
    ) -> str:
        path = new_path()
        try:
            await store.put_if_absent(path, data)
        except Exists:
            return path
        except StratalogError:
            return await put_once(store, new_path, data, patience)
        return path

    async def gullible_made(
        store: Store,
        new_path: Callable[[], str],
        make: Callable[[], bytes],
        patience: Patience,
        runtime: Runtime,
    ) -> str:
        return await gullible(store, new_path, await runtime.compute(make), patience)

    with (
        plant(uploader_module, "put_once", gullible),
        plant(uploader_module, "put_made_once", gullible_made),
        plant(fold_task_module, "put_once", gullible),
    ):
        yield


@contextmanager
def reuse_a_name() -> Iterator[None]:
    """A fragment is named by its sequence number alone."""

    def by_number(seq_no: int, _incarnation: str, _upload: int) -> str:
        return f"log/Bucket={0:016x}/FragmentSeqNo={seq_no:016x}.parquet"

    with plant(names_module, "fragment_path", by_number):
        yield


@contextmanager
def link_out_of_order() -> Iterator[None]:
    """Fragments are linked as they come, not in sequence."""

    def any_ready(self: UnitsUnderWay, fragments_max: int) -> list[Unit]:
        return [unit for unit in self._units if unit.ready][:fragments_max]

    def take(self: UnitsUnderWay, group: list[Unit]) -> list[object]:
        taken: list[object] = []
        for unit in group:
            self._units.remove(unit)
            taken.extend(unit.submissions)
        return taken

    def linked_anyhow(
        manifest: Manifest, fragments: Sequence[Fragment], inc: str, writer: str, write_id: str
    ) -> Manifest:
        number = manifest.next_seq_no
        offset = manifest.tail.offset
        placed = []
        for fragment in fragments:
            start = msgspec.structs.replace(fragment.start, offset=offset)
            offset += fragment.count
            limit = msgspec.structs.replace(fragment.limit, offset=offset)
            placed.append(
                msgspec.structs.replace(fragment, seq_no=number, start=start, limit=limit)
            )
            number += 1
        return link(manifest, placed, inc, writer, write_id)

    async def commit_any(self: GroupCommit) -> None:
        units = self._units
        try:
            while group := units.ready(self._options.manifest_fragments_max):
                units.linking = group
                try:
                    await self._commit(group)
                finally:
                    units.linking = []
            if units.first is not None and units.first.error is not None:
                self._abandon(units.first, units.first.error)
            self._wakeup.wake()
        finally:
            self._committing = None
            self.notify_if_idle()

    with (
        plant(GroupCommit, "_commit_ready", commit_any),
        plant(UnitsUnderWay, "ready", any_ready),
        plant(UnitsUnderWay, "take", take),
        plant(committer_module, "link", linked_anyhow),
    ):
        yield


@contextmanager
def forget_to_rebase() -> Iterator[None]:
    """After a refusal the old manifest is put again, under the new etag."""
    after_refusal = Committer._after_refusal

    async def stubborn(
        self: Committer, refusal: Overtaken, fragments: Sequence[Fragment]
    ) -> CommitOutcome | None:
        mine = self.manifest
        outcome = await after_refusal(self, refusal, fragments)
        if outcome is None:
            self.manifest = mine
        return outcome

    with plant(Committer, "_after_refusal", stubborn):
        yield


@contextmanager
def double_on_retry() -> Iterator[None]:
    """An unknown outcome is taken for a failure, and everything is sent again."""

    async def hasty(
        store: Store,
        path: str,
        data: bytes,
        etag: str,
        _is_ours: Callable[[Blob], bool],
        patience: Patience,
    ) -> Landed | Overtaken:
        try:
            return await swap(store, path, data, etag, lambda _: False, patience)
        except Unknown:
            return Overtaken(await store.get(path), answered=False)

    def never(*_: object) -> object:
        return Verdict.DID_NOT

    with (
        plant(settle_module, "swap", hasty),
        plant(settle_module, "judge", never),
    ):
        yield


@contextmanager
def drop_linked() -> Iterator[None]:
    """The table that settles lost answers is not kept."""

    def without(
        manifest: Manifest, fragments: Sequence[Fragment], inc: str, writer: str, write_id: str
    ) -> Manifest:
        return msgspec.structs.replace(
            link(manifest, fragments, inc, writer, write_id), linked=manifest.linked
        )

    with plant(committer_module, "link", without):
        yield


@contextmanager
def ignore_the_sweep_epoch() -> Iterator[None]:
    """A fragment is linked although a sweep began since its upload."""
    commit = Committer.commit

    async def careless(self: Committer, uploads: Sequence[Upload]) -> CommitOutcome:
        epoch = self.manifest.sweep_epoch
        outcome = await commit(self, [Upload(each.fragment, epoch) for each in uploads])
        while outcome is CommitOutcome.EPOCH_MOVED:
            epoch = self.manifest.sweep_epoch
            outcome = await commit(self, [Upload(each.fragment, epoch) for each in uploads])
        return outcome

    with plant(Committer, "commit", careless):
        yield


@contextmanager
def settle_without_another_swap() -> Iterator[None]:
    """An unchanged etag after a lost answer is taken for "it did not happen"."""

    async def impatient(
        store: Store,
        path: str,
        data: bytes,
        etag: str,
        is_ours: Callable[[Blob], bool],
        patience: Patience,
    ) -> Landed | Overtaken:
        try:
            return Landed(await store.put_if_match(path, data, etag))
        except StratalogError:
            current = await store.get(path)
            if is_ours(current):
                return Landed(current.etag, current)
            return Overtaken(current, answered=False)

    async def give_up(
        self: Committer, refusal: Overtaken, fragments: Sequence[Fragment]
    ) -> CommitOutcome | None:
        if refusal.current is not None and refusal.current.etag == self._etag:
            raise StratalogError("did not happen")
        return await after_refusal(self, refusal, fragments)

    after_refusal = Committer._after_refusal
    with (
        plant(settle_module, "swap", impatient),
        plant(Committer, "_after_refusal", give_up),
    ):
        yield


PLANTED = (
    acknowledge_before_the_manifest,
    ignore_a_lost_swap,
    believe_exists,
    reuse_a_name,
    link_out_of_order,
    forget_to_rebase,
    double_on_retry,
    drop_linked,
    ignore_the_sweep_epoch,
    settle_without_another_swap,
)
