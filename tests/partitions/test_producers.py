"""The table of producers decides as Kafka does, and is a function of the log."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stratalog.errors import Corrupt
from stratalog.partitions import (
    Batch,
    NewRecord,
    ProducerFault,
    Producers,
    RefusedProducer,
    encode_batch,
)

LAST = 2**31 - 1
DAY_US = 86_400_000_000
OUT_OF_ORDER = ProducerFault.OUT_OF_ORDER_SEQUENCE_NUMBER
OLD_EPOCH = ProducerFault.INVALID_PRODUCER_EPOCH


def batch(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 7) -> Batch:
    records = [NewRecord(None, b"x")] * count
    data = encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    return Batch.over(data)


class Written:
    """A log with a table of producers."""

    def __init__(self, producers: Producers | None = None) -> None:
        self.producers = Producers() if producers is None else producers
        self.end = 0

    def append(self, batch: Batch, time_us: int = 0) -> int | ProducerFault:
        """The base offset: its own, or that of the original."""
        try:
            original = self.producers.judge(batch, time_us)
        except RefusedProducer as error:
            return error.fault
        if original is not None:
            return original.base_offset
        offset, self.end = self.end, self.end + batch.count
        self.producers.accept(batch, offset, time_us)
        return offset


def test_batches_that_follow_one_another_are_accepted() -> None:
    log = Written()
    assert [log.append(batch(at, 2)) for at in (0, 2, 4)] == [0, 2, 4]
    assert log.append(batch(7)) == OUT_OF_ORDER
    assert log.append(batch(6)) == 6


def test_the_first_sequence_number_of_an_unknown_producer_is_any() -> None:
    log = Written()
    assert log.append(batch(1000)) == 0
    assert log.append(batch(1001)) == 1


def test_batches_without_a_producer_are_not_judged() -> None:
    log = Written()
    assert [log.append(batch(0, producer=-1)) for _ in range(3)] == [0, 1, 2]
    assert len(log.producers) == 0


def test_the_last_five_batches_are_known_again() -> None:
    log = Written()
    for at in range(8):
        log.append(batch(at))
    assert [log.append(batch(at)) for at in range(8)] == [OUT_OF_ORDER] * 3 + [3, 4, 5, 6, 7]
    assert log.end == 8


def test_a_batch_that_begins_alike_but_is_longer_or_shorter_is_no_duplicate() -> None:
    log = Written()
    log.append(batch(0, 3))
    assert log.append(batch(0, 2)) == OUT_OF_ORDER
    assert log.append(batch(0, 4)) == OUT_OF_ORDER
    assert log.append(batch(0, 3)) == 0


def test_a_new_epoch_begins_with_0_and_ends_the_old_one() -> None:
    log = Written()
    log.append(batch(0, 5))
    assert log.append(batch(5, epoch=1)) == OUT_OF_ORDER
    assert log.append(batch(0, epoch=1)) == 5
    assert log.append(batch(5, epoch=0)) == OLD_EPOCH
    assert log.append(batch(0, 5, epoch=0)) == OLD_EPOCH
    assert log.append(batch(0, epoch=1)) == 5
    assert log.append(batch(1, epoch=1)) == 6


@pytest.mark.parametrize("count", [1, 2, 5])
def test_sequence_numbers_go_round(count: int) -> None:
    log = Written()
    first = LAST - 1
    assert log.append(batch(first, count)) == 0
    following = (first + count) % (LAST + 1)
    assert log.append(batch(following, 3)) == count
    assert log.append(batch(first, count)) == 0
    assert log.append(batch(following, 3)) == count
    assert log.append(batch(LAST)) == OUT_OF_ORDER


def test_a_silent_producer_is_forgotten_by_the_times_of_the_log() -> None:
    log = Written()
    log.append(batch(0), time_us=1)
    assert log.append(batch(5), time_us=DAY_US) == OUT_OF_ORDER
    assert log.append(batch(5), time_us=1 + DAY_US) == 1
    log.append(batch(0, producer=8), time_us=2 + DAY_US)
    log.append(batch(1, producer=8), time_us=2 + 2 * DAY_US)
    assert [each.producer_id for each in log.producers] == [8]


def test_the_producer_that_was_silent_longest_makes_room() -> None:
    log = Written(Producers(producers_max=3))
    for producer in (1, 2, 3, 1, 4):
        log.append(batch(0 if producer != 1 or not log.end else 1, producer=producer))
    assert sorted(each.producer_id for each in log.producers) == [1, 3, 4]


def test_what_was_not_written_is_forgotten_and_what_it_displaced_is_back() -> None:
    log = Written(Producers(producers_max=2))
    log.append(batch(0, producer=1))
    log.append(batch(0, producer=2))
    log.producers.commit(log.end)
    before = list(log.producers)
    log.append(batch(1, producer=1))
    log.append(batch(0, producer=3))
    log.append(batch(0, epoch=1, producer=3))
    log.producers.forget_in_flight()
    assert list(log.producers) == before
    assert log.append(batch(1, producer=2)) == 5


def test_the_next_batches_of_a_producer_whose_first_one_failed_wait_for_it() -> None:
    log = Written()
    assert [log.append(batch(at)) for at in (10, 11)] == [0, 1]
    log.producers.forget_in_flight()
    assert log.append(batch(11)) == OUT_OF_ORDER
    assert log.append(batch(0, producer=8)) == 2
    assert [log.append(batch(at)) for at in (10, 11)] == [3, 4]


def test_a_newer_epoch_of_it_does_not_wait() -> None:
    log = Written()
    log.append(batch(10))
    log.producers.forget_in_flight()
    assert log.append(batch(0, epoch=1)) == 1


def test_a_snapshot_has_the_committed_state_alone() -> None:
    log = Written()
    log.append(batch(0))
    log.producers.commit(log.end)
    log.append(batch(1))
    restored = Producers.restored(log.producers.snapshot())
    (known,) = restored
    assert known.last_sequence == 0
    log.producers.commit(log.end)
    assert list(Producers.restored(log.producers.snapshot())) == list(log.producers)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_snapshot_or_corrupt(data: bytes) -> None:
    try:
        Producers.restored(data)
    except Corrupt:
        return
    assert msgspec.msgpack.decode(data)


@pytest.mark.parametrize("wrong", [[2, []], [1, [[7, 0, []]]], [1, [[7, 0, [[0, 0, 1, 0]]]] * 2]])
def test_a_snapshot_that_contradicts_itself_is_corrupt(wrong: object) -> None:
    with pytest.raises(Corrupt):
        Producers.restored(msgspec.msgpack.encode(wrong))


class KafkaRules:
    """The rules of Kafka's `ProducerAppendInfo`, written down once more and naively; and one of
    ours: a producer that is not known goes on with its first batch, if that failed."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.batches: dict[int, list[tuple[int, int, int]]] = {}
        self.awaited: dict[int, tuple[int, int]] = {}
        """Epoch and sequence number of a first batch that failed."""

    def append(self, producer: int, epoch: int, first: int, count: int, offset: int) -> object:
        last = first + count - 1
        if last > LAST:
            last -= LAST + 1
        known = self.epochs.get(producer)
        if known is None:
            awaited_epoch, awaited = self.awaited.get(producer, (epoch, first))
            if epoch == awaited_epoch and first != awaited:
                return OUT_OF_ORDER
            self.awaited.pop(producer, None)
        if known == epoch:
            for begin, end, at in self.batches[producer][-5:]:
                if (begin, end) == (first, last):
                    return at
        if known is not None and epoch < known:
            return OLD_EPOCH
        if known is not None and epoch > known and first != 0:
            return OUT_OF_ORDER
        if known == epoch:
            before = self.batches[producer][-1][1]
            if first != before + 1 and not (first == 0 and before == LAST):
                return OUT_OF_ORDER
        if known != epoch:
            self.batches[producer] = []
        self.epochs[producer] = epoch
        self.batches[producer].append((first, last, offset))
        return offset


class ProducerMachine(RuleBasedStateMachine):
    """Against Kafka's rules; and whatever happens in flight, the committed state is the log's."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Written()
        self.kafka = KafkaRules()
        self.accepted: list[tuple[Batch, int]] = []
        self.committed = 0

    @rule(
        producer=st.integers(0, 2),
        epoch=st.integers(0, 2),
        near=st.integers(-3, 3),
        count=st.integers(1, 3),
    )
    def append(self, producer: int, epoch: int, near: int, count: int) -> None:
        known = self.kafka.batches.get(producer)
        base = (known[-1][1] + 1) if known else 0
        first = (base + near) % (LAST + 1) if near else base % (LAST + 1)
        if epoch == 2 and not known:
            first = LAST - 1
        made = batch(first, count, epoch=epoch, producer=producer)
        end = self.log.end
        expected = self.kafka.append(producer, epoch, first, count, end)
        assert self.log.append(made) == expected
        if self.log.end != end:
            self.accepted.append((made, end))

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(self.committed, len(self.accepted)))
        if count:
            last, offset = self.accepted[count - 1]
            self.log.producers.commit(offset + last.count)
        self.committed = count

    @rule()
    def fail(self) -> None:
        self.log.producers.forget_in_flight()
        failed = self.accepted[self.committed :]
        del self.accepted[self.committed :]
        awaited, self.kafka = self.kafka.awaited, KafkaRules()
        for made, offset in self.accepted:
            args = (made.producer_id, made.producer_epoch, made.base_sequence, made.count)
            self.kafka.append(*args, offset)
        for made, _ in reversed(failed):  # the first of each producer counts
            if made.producer_id not in self.kafka.epochs:
                awaited[made.producer_id] = (made.producer_epoch, made.base_sequence)
        self.kafka.awaited = awaited
        self.log.end = sum(made.count for made, _ in self.accepted)

    @invariant()
    def the_committed_state_is_that_of_the_log(self) -> None:
        replayed = Producers()
        for made, offset in self.accepted[: self.committed]:
            replayed.accept(made, offset, 0)
            replayed.commit(offset + made.count)
        assert Producers.restored(self.log.producers.snapshot()).snapshot() == replayed.snapshot()


TestProducers = ProducerMachine.TestCase
TestProducers.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
