"""Copying a partition from one disk to another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest

from segments.replicas import (
    SMALL,
    STATE,
    TINY_MESSAGES,
    CutTransport,
    SpyTransport,
    checkpointed_source,
    contents,
    copied,
    copy,
    entries_of,
    fill,
    opened,
)
from stratalog.errors import (
    Conflict,
    Corrupt,
    Full,
    Invalid,
    NotFound,
    NotHappened,
    StratalogError,
    Unavailable,
)
from stratalog.indexset import EMPTY, IndexSet
from stratalog.segments import (
    Disk,
    MemoryTransport,
    Partition,
    StreamTransport,
    TransferOptions,
    TransferReport,
    receive_partition,
    send_partition,
)
from stratalog.segments.transfer.messages import Has, Offer, Put, StatePart
from stratalog.testing import SimulatedFiles, Simulation, simulate

Scenario = Callable[[Simulation, Partition, Partition], Coroutine[Any, Any, None]]


def with_two(scenario: Scenario, seed: int = 1) -> None:
    """Run it with two empty partitions, on disks of their own."""

    async def main(simulation: Simulation) -> None:
        async with opened(simulation) as source, opened(simulation) as replica:
            await scenario(simulation, source, replica)

    simulate(main, seed)


def numbers(first: int, last: int) -> IndexSet:
    return IndexSet(range(first, last + 1))


def test_an_empty_replica_gets_what_lives_then_the_checkpoint_then_the_rest() -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        await checkpointed_source(source)
        near, far = MemoryTransport.pair()
        spy = SpyTransport(near)
        sent, received = await copy(source, replica, ends=(spy, far))
        assert sent == received
        assert sent == TransferReport(
            entries=7,
            payload_bytes=sum(len(entry.payload) for entry in (await contents(source)).entries),
            state_bytes=len(STATE),
            checkpoint=8,
            truncated_after=None,
            restarts=0,
            last=12,
        )
        kinds = [
            tuple(message.entries().indexes) if isinstance(message, Put) else type(message).__name__
            for message in spy.sent
        ]
        assert kinds == [
            *("Offer", (2,), (5,), (8,), "StatePart", "StatePart"),
            *((9,), (10,), (11,), (12,), "End"),
        ]
        assert await contents(replica) == await contents(source)
        assert replica.is_whole

    with_two(scenario)


def test_what_was_copied_is_there_after_a_restart() -> None:
    async def main(simulation: Simulation) -> None:
        files = SimulatedFiles(random=Random(simulation.seed))
        async with opened(simulation) as source:
            await checkpointed_source(source)
            async with opened(simulation, files) as replica:
                await copied(source, replica)
            lost = files.after_power_loss(Random(simulation.seed))
            async with opened(simulation, lost) as replica:
                assert await contents(replica) == await contents(source)

    for seed in range(10):
        simulate(main, seed)


class TestTheGnarlyExample:
    """Follower: 100–1000 in term 1, 1001–1500 in term 2. A snapshot at 2000, in term 3."""

    live = IndexSet.of([100, 600, 1200, 1777])

    async def sent_to_follower(
        self, source: Partition, replica: Partition, second_ends: int
    ) -> tuple[IndexSet, TransferReport]:
        await replica.write(0, entries_of(range(100, 1001), 1))
        await replica.write(1000, entries_of(range(1001, 1501), 2))
        await source.write(0, entries_of(range(100, 1001), 1))
        await source.write(1000, entries_of(range(1001, second_ends + 1), 2))
        await source.write(second_ends, entries_of(range(second_ends + 1, 2001), 3))
        await source.checkpoint(2000, b"state", self.live)
        near, far = MemoryTransport.pair()
        spy = SpyTransport(near)
        sent, received = await copy(source, replica, ends=(spy, far))
        assert sent == received
        assert isinstance(sent, TransferReport)
        assert await contents(replica) == await contents(source)
        return spy.indexes, sent

    def test_a_follower_that_has_all_up_to_1500_is_sent_1777_only(self) -> None:
        async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
            indexes, report = await self.sent_to_follower(source, replica, 1500)
            assert indexes == IndexSet.of([1777])
            assert report.truncated_after is None

        with_two(scenario)

    def test_a_follower_that_is_stale_above_1100_is_sent_1200_and_1777(self) -> None:
        async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
            indexes, report = await self.sent_to_follower(source, replica, 1100)
            assert indexes == IndexSet.of([1200, 1777])
            assert report.truncated_after == 1100

        with_two(scenario)


def test_a_lagging_replica_is_sent_what_it_misses() -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        await fill(replica, 1, 4)
        await checkpointed_source(source)
        report = await copied(source, replica)
        assert (report.entries, report.checkpoint) == (2 + 4, 8)
        assert await contents(replica) == await contents(source)

    with_two(scenario)


def test_a_replica_that_has_every_entry_gets_no_checkpoint_and_goes_on() -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        await fill(replica, 1, 6, epoch=1)
        await fill(replica, 7, 9, epoch=2)
        await checkpointed_source(source)
        report = await copied(source, replica)
        assert (report.entries, report.checkpoint) == (3, None)
        assert replica.checkpoint_index == 0
        assert replica.indexes == numbers(1, 12)
        assert replica.lineage == source.lineage

    with_two(scenario)


def test_a_replica_that_has_everything_is_sent_nothing() -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        await checkpointed_source(source)
        await copied(source, replica)
        again = await copied(source, replica)
        assert (again.entries, again.state_bytes, again.checkpoint) == (0, 0, None)
        assert await contents(replica) == await contents(source)

    with_two(scenario)


def test_an_empty_source_gives_an_empty_replica() -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        report = await copied(source, replica)
        assert (report.entries, report.last, replica.last) == (0, 0, 0)

    with_two(scenario)


def test_a_state_without_bytes_is_copied() -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        await fill(source, 1, 3)
        await source.checkpoint(2, b"")
        await copied(source, replica)
        assert await replica.state() == b""
        assert await contents(replica) == await contents(source)

    with_two(scenario)


def test_entries_of_another_epoch_are_cut_off_and_never_seen_again() -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        await fill(replica, 1, 4, epoch=1)
        await fill(replica, 5, 20, epoch=3)
        await checkpointed_source(source)
        report = await copied(source, replica)
        assert report.truncated_after == 4
        assert await contents(replica) == await contents(source)

    with_two(scenario)


def test_a_replica_goes_on_after_a_copy_as_its_source_does() -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        await checkpointed_source(source)
        await copied(source, replica)
        for partition in (source, replica):
            await fill(partition, 13, 20, epoch=2)
            await partition.checkpoint(15, b"fifteen", IndexSet.of([5, 13]))
        assert await contents(replica) == await contents(source)

    with_two(scenario)


def test_a_second_copy_brings_a_replica_to_the_newer_checkpoint() -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        await checkpointed_source(source)
        await copied(source, replica)
        await fill(source, 13, 30, epoch=2)
        await source.checkpoint(25, b"later", IndexSet.of([5, 12, 20]))
        report = await copied(source, replica)
        assert (report.entries, report.checkpoint) == (1 + 5, 25)
        assert await contents(replica) == await contents(source)

    with_two(scenario)


def test_interrupted_at_any_message_it_is_repeated_without_sending_anything_twice() -> None:
    messages = 0

    async def main(simulation: Simulation) -> bool:
        files = SimulatedFiles(random=Random(simulation.seed))
        async with opened(simulation) as source:
            await checkpointed_source(source)
            async with opened(simulation, files) as replica:
                await fill(replica, 1, 3, epoch=1)
                await fill(replica, 4, 6, epoch=3)
                sent, received = await copy(source, replica, ends=CutTransport.pair(messages))
                is_done = isinstance(sent, TransferReport)
                if not is_done:
                    assert isinstance(sent, Unavailable)
                    assert isinstance(received, Unavailable | TransferReport)
                arrived = replica.indexes - numbers(1, 3) if messages > 1 else EMPTY
                near, far = MemoryTransport.pair()
                spy = SpyTransport(near)
                again, _ = await copy(source, replica, ends=(spy, far))
                assert isinstance(again, TransferReport), again
                assert not spy.indexes & arrived, "what had arrived stayed"
                assert await contents(replica) == await contents(source)
            async with opened(simulation, files) as replica:
                assert await contents(replica) == await contents(source)
        return is_done

    while not simulate(main, messages):
        messages += 1
    assert messages == 2 + 2 * (6 + 2 + 1), "offer, answer; entries, parts, the end, each answered"


@pytest.mark.parametrize("at", range(1, 12))
def test_a_source_that_checkpoints_and_compacts_meanwhile_makes_a_new_offer(at: int) -> None:
    async def main(simulation: Simulation) -> None:
        files = SimulatedFiles(random=Random(simulation.seed))
        async with (
            await Disk.open(files, SMALL, runtime=simulation.runtime) as disk,
            opened(simulation) as replica,
        ):
            source = await disk.partition("orders")
            await checkpointed_source(source)
            await disk.flush()
            near, far = MemoryTransport.pair()

            async def move_on(number: int) -> None:
                if number == at:
                    await fill(source, 13, 40, epoch=2)
                    await disk.flush()
                    await source.checkpoint(39, b"a later state", IndexSet.of([5]))
                    await source.compact()

            spy = SpyTransport(near, move_on)
            sent, received = await copy(source, replica, ends=(spy, far))
            assert sent == received
            assert isinstance(sent, TransferReport)
            offers = [message for message in spy.sent if isinstance(message, Offer)]
            assert len(offers) == sent.restarts + 1
            numbered = [
                index
                for message in spy.sent
                if isinstance(message, Put)
                for index in message.entries().indexes
            ]
            assert len(numbered) == len(set(numbered)), "nothing was sent twice"
            if sent.restarts:
                assert await contents(replica) == await contents(source)
            else:
                assert (replica.checkpoint_index, replica.last) == (8, 12)
            after = await copied(source, replica)
            assert after.entries <= 29
            assert await contents(replica) == await contents(source)

    simulate(main, at)


def test_entries_that_die_while_they_are_sent_are_not_sent() -> None:
    """The first message after the offer finds that 2 is gone already."""

    async def main(simulation: Simulation) -> None:
        files = SimulatedFiles(random=Random(simulation.seed))
        async with (
            await Disk.open(files, SMALL, runtime=simulation.runtime) as disk,
            opened(simulation) as replica,
        ):
            source = await disk.partition("orders")
            await checkpointed_source(source)
            await disk.flush()
            near, far = MemoryTransport.pair()

            async def move_on(number: int) -> None:
                if number == 1:
                    await fill(source, 13, 40, epoch=2)
                    await disk.flush()
                    await source.checkpoint(39, b"a later state", IndexSet.of([39]))

            spy = SpyTransport(near, move_on)
            sent, received = await copy(source, replica, ends=(spy, far))
            assert sent == received
            assert isinstance(sent, TransferReport)
            assert sent.restarts == 1
            assert spy.indexes == IndexSet.of([39, 40])
            assert await contents(replica) == await contents(source)

    simulate(main, 1)


@pytest.mark.parametrize("at", range(1, 12))
def test_a_source_that_is_overwritten_meanwhile_makes_a_new_offer(at: int) -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        await checkpointed_source(source)
        near, far = MemoryTransport.pair()

        async def take_over(number: int) -> None:
            if number == at:
                await source.write(9, entries_of(range(10, 14), 5))

        sent, received = await copy(source, replica, ends=(SpyTransport(near, take_over), far))
        assert sent == received
        assert isinstance(sent, TransferReport)
        if at <= 9:
            assert sent.restarts == 1, "entry 10 was not yet sent, or others were still to come"
            assert await contents(replica) == await contents(source)
        await copied(source, replica)
        assert await contents(replica) == await contents(source)
        assert replica.lineage.last_epoch == 5

    with_two(scenario, at)


def test_a_source_that_never_rests_is_given_up() -> None:
    async def main(simulation: Simulation) -> None:
        files = SimulatedFiles(random=Random(simulation.seed))
        async with (
            await Disk.open(files, SMALL, runtime=simulation.runtime) as disk,
            opened(simulation) as replica,
        ):
            source = await disk.partition("orders")
            await checkpointed_source(source)
            near, far = MemoryTransport.pair()

            async def move_on(_: int) -> None:
                last = source.last
                await fill(source, last + 1, last + 20, epoch=2)
                await disk.flush()
                await source.checkpoint(last + 19, b"later", IndexSet.of([last + 19]))

            options = TransferOptions(message_bytes=40, restarts_max=3)
            sent, received = await copy(
                source, replica, options, ends=(SpyTransport(near, move_on), far)
            )
            assert isinstance(sent, Unavailable)
            assert "faster" in str(sent)
            assert isinstance(received, Unavailable)
            assert "faster" in str(received), "the replica was told why"
            await copied(source, replica)
            assert await contents(replica) == await contents(source)

    simulate(main, 1)


@pytest.mark.parametrize("messages", range(2, 30, 3))
def test_nothing_of_a_first_source_is_left_after_a_copy_from_another(messages: int) -> None:
    async def main(simulation: Simulation) -> None:
        files = SimulatedFiles(random=Random(simulation.seed))
        async with opened(simulation) as first, opened(simulation) as second:
            await checkpointed_source(first)
            await fill(second, 1, 3, epoch=1)
            await fill(second, 4, 12, epoch=4)
            await second.checkpoint(9, b"another state", IndexSet.of([2, 4, 5]))
            async with opened(simulation, files) as replica:
                await copy(first, replica, ends=CutTransport.pair(messages))
                had_checkpoint = replica.checkpoint_index == 8
            async with opened(simulation, files) as replica:
                if had_checkpoint:
                    before = await contents(replica) if replica.is_whole else None
                    _, received = await copy(second, replica)
                    assert isinstance(received, Corrupt), "two histories were committed"
                    if before is not None:
                        assert await contents(replica) == before
                    return
                await copied(second, replica)
                assert await contents(replica) == await contents(second)

    simulate(main, messages)


def test_a_rest_of_a_copy_from_a_later_source_is_completed_from_an_earlier_one() -> None:
    """At the later source 3 and 6 had died: they are missing in the middle."""

    async def scenario(simulation: Simulation, source: Partition, replica: Partition) -> None:
        async with opened(simulation) as later:
            for partition in (source, later):
                await fill(partition, 1, 12)
            await later.checkpoint(12, b"twelve", IndexSet.of([2, 5, 8]))
            await source.checkpoint(7, b"seven", IndexSet.of([2, 3, 5, 6]))
            near, far = MemoryTransport.pair()

            async def break_off(_: int) -> None:
                if isinstance(spy.sent[-1], StatePart):
                    near.close()

            spy = SpyTransport(near, break_off)
            await copy(later, replica, ends=(spy, far))
            assert replica.indexes == IndexSet.of([2, 5, 8])
            assert not replica.is_whole
            report = await copied(source, replica)
            assert report.truncated_after == 2
            assert await contents(replica) == await contents(source)

    with_two(scenario)


def test_a_replica_whose_copy_is_not_complete_is_no_source() -> None:
    async def scenario(simulation: Simulation, source: Partition, replica: Partition) -> None:
        async with opened(simulation) as third:
            await checkpointed_source(source)
            await copy(source, replica, ends=CutTransport.pair(6))
            assert not replica.is_whole
            sent, received = await copy(replica, third)
            assert isinstance(sent, Conflict)
            assert isinstance(received, Conflict)
            assert third.last == 0

    with_two(scenario)


def test_two_histories_below_the_checkpoint_are_refused_and_nothing_is_changed() -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        await checkpointed_source(source)
        await fill(replica, 1, 3, epoch=1)
        await fill(replica, 4, 9, epoch=3)
        await replica.checkpoint(6, b"its own", IndexSet.of([2, 4]))
        before = await contents(replica)
        sent, received = await copy(source, replica)
        assert isinstance(received, Corrupt)
        assert isinstance(sent, Corrupt)
        assert "two histories" in str(sent)
        assert await contents(replica) == before

    with_two(scenario)


def test_a_damaged_message_is_refused_at_whatever_place_and_the_copy_repeated() -> None:
    at = 0
    is_done = False

    async def main(simulation: Simulation) -> bool:
        async with opened(simulation) as source, opened(simulation) as replica:
            await checkpointed_source(source)
            near, far = MemoryTransport.pair()

            def damage(number: int, message: bytes) -> bytes:
                if number != at:
                    return message
                place = simulation.random.randrange(len(message))
                flipped = message[place] ^ (1 << simulation.random.randrange(8))
                return message[:place] + bytes([flipped]) + message[place + 1 :]

            spies = (SpyTransport(near, change=damage), SpyTransport(far, change=damage))
            sent, received = await copy(source, replica, ends=spies)
            if at > max(len(spy.sent) for spy in spies):
                return True
            assert isinstance(sent, Corrupt | Invalid)
            assert isinstance(received, Corrupt | Invalid | TransferReport)
            await copied(source, replica)
            assert await contents(replica) == await contents(source)
            return False

    while not is_done:
        at += 1
        is_done = simulate(main, at)
    assert at > 10


def test_a_lost_message_is_noticed() -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        await checkpointed_source(source)
        near, far = MemoryTransport.pair()

        class Losing(SpyTransport):
            async def send(self, message: bytes) -> None:
                if len(self.sent) == 2:
                    self.sent.append(self.sent[-1])
                    return
                await super().send(message)

        options = TransferOptions(message_bytes=40, timeout_s=5)
        sent, received = await copy(source, replica, options, ends=(Losing(near), far))
        assert isinstance(sent, Corrupt)
        assert isinstance(received, Corrupt)
        await copied(source, replica)
        assert await contents(replica) == await contents(source)

    with_two(scenario)


def test_a_side_that_says_nothing_is_given_up() -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        near, far = MemoryTransport.pair()
        with pytest.raises(Unavailable, match="the replica of a copy has been silent"):
            await send_partition(source, near, TINY_MESSAGES)
        near, far = MemoryTransport.pair()
        with pytest.raises(Unavailable, match="the source of a copy has been silent"):
            await receive_partition(replica, far, TINY_MESSAGES)
        await replica.append([b"it takes writes again"])

    with_two(scenario)


def test_a_replica_takes_neither_writes_nor_checkpoints_while_it_receives() -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        await fill(replica, 1, 3)
        await checkpointed_source(source)
        near, far = MemoryTransport.pair()
        refused: list[StratalogError] = []

        async def interfere(number: int) -> None:
            if number == 4:
                for attempt in (replica.append([b"mine"]), replica.checkpoint(2, b"mine")):
                    try:
                        await attempt
                    except NotHappened as error:
                        refused.append(error)

        await copy(source, replica, ends=(SpyTransport(near, interfere), far))
        assert len(refused) == 2
        assert await contents(replica) == await contents(source)

    with_two(scenario)


def test_a_window_bounds_what_is_on_its_way() -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        await fill(source, 1, 40)
        near, far = MemoryTransport.pair()
        on_the_way: list[int] = []
        out, back = SpyTransport(near), SpyTransport(far)

        async def count(_: int) -> None:
            on_the_way.append(len(out.sent) - len(back.sent))

        out._before = count
        options = TransferOptions(message_bytes=40, window_bytes=300)
        await copy(source, replica, options, ends=(out, back))
        assert max(on_the_way) <= 5
        assert await contents(replica) == await contents(source)

    with_two(scenario)


def test_a_full_disk_of_the_replica_is_told_to_the_source_and_repeated_when_there_is_room() -> None:
    async def main(simulation: Simulation) -> None:
        files = SimulatedFiles(random=Random(simulation.seed))
        async with opened(simulation) as source, opened(simulation, files) as replica:
            await checkpointed_source(source)
            await fill(replica, 1, 2)
            files.capacity_bytes = files.used_bytes + 10
            sent, received = await copy(source, replica)
            assert isinstance(received, Full)
            assert isinstance(sent, Full)
            assert str(sent).startswith("the replica: ")
            files.capacity_bytes = None
            await copied(source, replica)
            assert await contents(replica) == await contents(source)

    simulate(main, 1)


def test_a_copy_that_is_cancelled_leaves_no_file_and_a_partition_that_works() -> None:
    async def main(simulation: Simulation) -> None:
        files = SimulatedFiles(random=Random(simulation.seed))
        async with opened(simulation) as source, opened(simulation, files) as replica:
            await checkpointed_source(source)
            near, far = MemoryTransport.pair()
            receiving = asyncio.create_task(receive_partition(replica, far, TINY_MESSAGES))

            async def cancel(_: int) -> None:
                if isinstance(spy.sent[-1], StatePart):
                    await asyncio.sleep(simulation.random.uniform(0, 0.02))
                    receiving.cancel()

            spy = SpyTransport(near, cancel)
            with contextlib.suppress(Unavailable):
                await send_partition(source, spy, TINY_MESSAGES)
            with pytest.raises(asyncio.CancelledError):
                await receiving
            assert replica.checkpoint_index == 0
            await asyncio.sleep(1)
            assert [name for name in files.names() if name.startswith("ckpt/")] == []
            await copied(source, replica)
            assert await contents(replica) == await contents(source)

    for seed in range(5):
        simulate(main, seed)


def test_a_replica_that_is_removed_meanwhile_is_told_to_the_source() -> None:
    async def main(simulation: Simulation) -> None:
        files = SimulatedFiles(random=Random(simulation.seed))
        async with (
            opened(simulation) as source,
            await Disk.open(files, SMALL, runtime=simulation.runtime) as disk,
        ):
            await checkpointed_source(source)
            replica = await disk.partition("orders")
            near, far = MemoryTransport.pair()

            async def remove(number: int) -> None:
                if number == at:
                    await disk.remove("orders")

            sent, received = await copy(source, replica, ends=(SpyTransport(near, remove), far))
            assert isinstance(received, NotFound)
            assert isinstance(sent, Unavailable)
            await copied(source, await disk.partition("orders"))

    for at in range(2, 8):
        simulate(main, at)


def test_a_large_write_is_divided_and_many_small_ones_are_gathered() -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        await source.append([b"x" * 10] * 200, epoch=1)
        for each in range(50):
            await source.append([b"%d" % each])
        near, far = MemoryTransport.pair()
        spy = SpyTransport(near)
        await copy(source, replica, TransferOptions(message_bytes=1024), ends=(spy, far))
        sizes = [message.entries().stored_bytes for message in spy.sent if isinstance(message, Put)]
        assert max(sizes) <= 1024
        assert len(sizes) <= 2 * (200 * 34 + 50 * 25) / 1024 + 1
        assert await contents(replica) == await contents(source)

    with_two(scenario)


def test_an_entry_larger_than_a_message_goes_alone() -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        await source.append([b"a", b"b" * 5000, b"c"], epoch=1)
        await copied(source, replica)
        assert await contents(replica) == await contents(source)

    with_two(scenario)


def test_what_the_replica_says_to_have_is_what_it_has_after_the_cut() -> None:
    async def scenario(_: Simulation, source: Partition, replica: Partition) -> None:
        await fill(replica, 1, 4, epoch=1)
        await fill(replica, 5, 9, epoch=3)
        await checkpointed_source(source)
        near, far = MemoryTransport.pair()
        spy = SpyTransport(far)
        await copy(source, replica, ends=(near, spy))
        answer = spy.sent[0]
        assert isinstance(answer, Has)
        assert answer == Has(indexes=numbers(1, 4), last=4, wants_state=True, cut_after=4)

    with_two(scenario)


@pytest.mark.parametrize("options", [{"message_bytes": 0}, {"timeout_s": -1}, {"window_bytes": 0}])
def test_limits_that_make_no_sense_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(Invalid):
        TransferOptions(**options)


async def _serving(replica: Partition) -> tuple[asyncio.Server, asyncio.Future[TransferReport]]:
    report: asyncio.Future[TransferReport] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            report.set_result(await receive_partition(replica, StreamTransport(reader, writer)))
        except StratalogError as error:
            report.set_exception(error)
        finally:
            writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0), report


def test_a_partition_is_copied_over_tcp_between_real_disks(tmp_path: Path) -> None:
    async def main() -> None:
        async with await Disk.open(tmp_path / "a") as one, await Disk.open(tmp_path / "b") as two:
            source, replica = await one.partition("orders"), await two.partition("orders")
            payload = bytes(range(256)) * 16
            for _ in range(4):
                await source.append([payload] * 500, epoch=1)
            state = payload * 1000
            await source.checkpoint(1500, state, IndexSet(range(1, 1000)))
            server, report = await _serving(replica)
            async with server:
                reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                sent = await send_partition(source, StreamTransport(reader, writer))
                writer.close()
                assert sent == await report
            assert (sent.entries, sent.state_bytes) == (999 + 500, len(state))
            assert await contents(replica) == await contents(source)

    asyncio.run(main())


def test_a_connection_that_breaks_and_one_that_speaks_another_language(tmp_path: Path) -> None:
    async def main() -> None:
        async with await Disk.open(tmp_path / "b") as disk:
            replica = await disk.partition("orders")
            for said, error in ((b"", Unavailable), (b"GET / HTTP/1.1\r\n\r\n", Invalid)):
                server, report = await _serving(replica)
                async with server:
                    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                    writer.write(said)
                    await writer.drain()
                    writer.close()
                    with pytest.raises(error):
                        await report
            assert replica.indexes == EMPTY

    asyncio.run(main())
