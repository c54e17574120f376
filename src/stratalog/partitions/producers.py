"""Which batch of an idempotent producer may follow. Pure: a function of the log, as Kafka decides.

A producer numbers its records. The table remembers, for each producer, its epoch and its last five
batches. A batch that repeats one of them is a duplicate; one that does not follow the last is
refused. Batches in flight count at once, because the next ones follow them; when a write fails,
they are forgotten again.

A producer that is not known may begin with any sequence number, as its older batches may have been
removed. But when its first batch failed, and it has sent the next ones already, they would be taken
as its first: so the number that failed is awaited. This is not a state of the log. It lasts as long
as the process, like the connections over which the next ones come, and not for ever: a client may
give the batch up, and go on with the next ones.

Times are append times, from the log, so that every replica forgets the same producers.
"""

import enum
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from stratalog.errors import Corrupt, NotHappened
from stratalog.partitions.batch import Batch

BATCHES_KEPT: Final = 5
"""As many as a producer may have in flight."""
SEQUENCE_MAX: Final = 2**31 - 1
EXPIRY_US: Final = 86_400_000_000
"""Kafka's default for ``producer.id.expiration.ms``."""
PRODUCERS_MAX: Final = 5_000
AWAITED_MAX: Final = 1_000
AWAITED_US: Final = 120_000_000
"""Kafka's default for ``delivery.timeout.ms``: later than this, nobody sends a batch again."""
SNAPSHOT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ProducerLimits:
    """How many producers a partition remembers, and for how long."""

    producers_max: int = PRODUCERS_MAX
    expiry_us: int = EXPIRY_US


DEFAULT_PRODUCER_LIMITS: Final = ProducerLimits()


class ProducerFault(enum.Enum):
    """Why the batch of a producer was refused. The wire has an error code for each."""

    INVALID_PRODUCER_EPOCH = "invalid-producer-epoch"
    OUT_OF_ORDER_SEQUENCE_NUMBER = "out-of-order-sequence-number"


class RefusedProducer(NotHappened):
    """The batch does not follow the last one of its producer."""

    kind: ClassVar[str] = "refused-producer"
    default_hint = "Nothing was appended. The producer sends what is missing, or begins anew."

    def __init__(
        self, fault: ProducerFault, message: str, *, expected: object = None, actual: object = None
    ) -> None:
        super().__init__(message, expected=expected, actual=actual)
        self.fault = fault


class Remembered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A batch that a producer has written."""

    base_sequence: int
    base_offset: int
    count: int
    time_us: int

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.count - 1) & SEQUENCE_MAX

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.count


class ProducerState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a partition knows of a producer."""

    producer_id: int
    epoch: int
    batches: tuple[Remembered, ...]
    """The newest ones of its epoch, oldest first; at least one."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence

    @property
    def time_us(self) -> int:
        """When its last batch was appended."""
        return self.batches[-1].time_us


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The stored form. Persisted: keep stable."""

    version: int
    producers: list[ProducerState]
    """The one that was silent longest comes first."""


@dataclass(frozen=True, slots=True)
class _Undo:
    """What one batch in flight changed: each producer's state before it."""

    next_offset: int
    before: tuple[tuple[int, ProducerState | None], ...]
    began: "_Began | None"


@dataclass(frozen=True, slots=True)
class _Began:
    """The first batch of a producer that was not known."""

    producer_id: int
    epoch: int
    sequence: int
    time_us: int

    @classmethod
    def by(cls, batch: Batch, time_us: int) -> "_Began":
        return cls(batch.producer_id, batch.producer_epoch, batch.base_sequence, time_us)


class Producers:
    """The producers of one partition.

    Call ``judge``, give the batch its offset, then call ``accept``; ``commit`` when it is durable,
    ``forget_in_flight`` when a write failed.
    """

    def __init__(
        self,
        states: list[ProducerState] | None = None,
        *,
        producers_max: int = PRODUCERS_MAX,
        expiry_us: int = EXPIRY_US,
    ) -> None:
        self._states = {each.producer_id: each for each in states or ()}
        """The one that was silent longest comes first."""
        self._in_flight: deque[_Undo] = deque()
        self._awaited: dict[int, _Began] = {}
        """First batches that failed, and have to come again before others."""
        self._producers_max = producers_max
        self._expiry_us = expiry_us

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProducerState]:
        return iter(self._states.values())

    def judge(self, batch: Batch, now_us: int) -> Remembered | None:
        """The original if the batch is a duplicate; ``None`` if it may be appended now.

        ``RefusedProducer`` if it does not fit. The original of a duplicate may be in flight.
        """
        if batch.producer_id < 0:
            return None
        known = self._known(batch, now_us)
        if known is None:
            self._must_be_awaited(batch, now_us)
            return None  # else any sequence number may be the first that is seen
        if batch.producer_epoch != known.epoch:
            _must_begin_epoch(batch, known)
            return None
        sequence = batch.base_sequence
        if sequence == (known.last_sequence + 1) & SEQUENCE_MAX:
            return None
        for original in known.batches:
            if original.base_sequence == sequence and original.count == batch.count:
                return original
        raise _out_of_order(batch, (known.last_sequence + 1) & SEQUENCE_MAX)

    def _known(self, batch: Batch, now_us: int) -> ProducerState | None:
        """Its producer, unless it was silent for so long that it is forgotten."""
        known = self._states.get(batch.producer_id)
        if known is None or known.time_us <= now_us - self._expiry_us:
            return None
        return known

    def _must_be_awaited(self, batch: Batch, now_us: int) -> None:
        awaited = self._awaited.get(batch.producer_id)
        if (
            awaited is not None
            and awaited.epoch == batch.producer_epoch
            and awaited.sequence != batch.base_sequence
            and awaited.time_us > now_us - AWAITED_US
        ):
            raise _out_of_order(batch, awaited.sequence)

    def failed(self, batch: Batch, now_us: int) -> None:
        """The batch was judged to fit, and was not accepted: those that follow it wait for it."""
        if batch.producer_id >= 0 and self._known(batch, now_us) is None:
            self._await(_Began.by(batch, now_us))

    def _await(self, began: _Began) -> None:
        self._awaited.pop(began.producer_id, None)
        self._awaited[began.producer_id] = began
        if len(self._awaited) > AWAITED_MAX:
            del self._awaited[next(iter(self._awaited))]

    def accept(self, batch: Batch, base_offset: int, time_us: int) -> None:
        """The batch has this offset now. Also called for each batch that is replayed."""
        if batch.producer_id < 0:
            return
        states, producer_id = self._states, batch.producer_id
        known = self._known(batch, time_us)
        written = Remembered(batch.base_sequence, base_offset, batch.count, time_us)
        silent_since = time_us - self._expiry_us
        began: _Began | None = None
        if known is None:
            began = _Began.by(batch, time_us)
            self._awaited.pop(producer_id, None)
        batches: tuple[Remembered, ...] = (written,)
        if known is not None and known.epoch == batch.producer_epoch:
            batches = (*known.batches[1 - BATCHES_KEPT :], written)
        before: tuple[tuple[int, ProducerState | None], ...] = (
            (producer_id, states.pop(producer_id, None)),
        )
        states[producer_id] = ProducerState(producer_id, batch.producer_epoch, batches)
        oldest = next(iter(states.values()))
        if len(states) > self._producers_max or oldest.time_us <= silent_since:
            before += self._evict(silent_since)
        self._in_flight.append(_Undo(written.next_offset, before, began))

    def _evict(self, silent_since: int) -> tuple[tuple[int, ProducerState | None], ...]:
        evicted: list[tuple[int, ProducerState | None]] = []
        while len(self._states) > 1:  # the newest stays
            producer_id, oldest = next(iter(self._states.items()))
            is_full = len(self._states) > self._producers_max
            if not is_full and oldest.time_us > silent_since:
                break
            evicted.append((producer_id, self._states.pop(producer_id)))
        return tuple(evicted)

    def commit(self, high_watermark: int) -> None:
        """Everything below this offset is durable."""
        in_flight = self._in_flight
        while in_flight and in_flight[0].next_offset <= high_watermark:
            in_flight.popleft()

    def forget_in_flight(self) -> None:
        """What is not committed was not written."""
        self._states = self._committed()
        for undo in self._in_flight:
            if undo.began is not None:
                self._await(undo.began)
        self._in_flight.clear()

    def _committed(self) -> dict[int, ProducerState]:
        states = dict(self._states)
        for undo in reversed(self._in_flight):
            for producer_id, before in undo.before:
                if before is None:
                    states.pop(producer_id, None)
                else:
                    states[producer_id] = before
        if self._in_flight:  # those that were put back stand at the end
            by_age = sorted(states.values(), key=lambda each: each.batches[-1].base_offset)
            states = {each.producer_id: each for each in by_age}
        return states

    def snapshot(self) -> bytes:
        """The committed state."""
        states = list(self._committed().values())
        return msgspec.msgpack.encode(Snapshot(SNAPSHOT_VERSION, states))

    @classmethod
    def restored(
        cls, snapshot: bytes, *, producers_max: int = PRODUCERS_MAX, expiry_us: int = EXPIRY_US
    ) -> "Producers":
        """From ``snapshot``. ``Corrupt`` if it is not one."""
        try:
            found = msgspec.msgpack.decode(snapshot, type=Snapshot)
        except msgspec.MsgspecError as error:
            raise Corrupt(f"the state of the producers is damaged: {error}") from None
        ids = {each.producer_id for each in found.producers}
        if (
            found.version != SNAPSHOT_VERSION
            or len(ids) < len(found.producers)
            or not all(each.batches for each in found.producers)
        ):
            raise Corrupt(
                "the state of the producers is not one that this version can read",
                expected=SNAPSHOT_VERSION,
                actual=found.version,
            )
        return cls(found.producers, producers_max=producers_max, expiry_us=expiry_us)


def _must_begin_epoch(batch: Batch, known: ProducerState) -> None:
    if batch.producer_epoch < known.epoch:
        raise RefusedProducer(
            ProducerFault.INVALID_PRODUCER_EPOCH,
            f"producer {batch.producer_id} has epoch {known.epoch}, "
            f"and the batch {batch.producer_epoch}",
            expected=known.epoch,
            actual=batch.producer_epoch,
        )
    if batch.base_sequence != 0:
        raise RefusedProducer(
            ProducerFault.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {batch.producer_id} begins epoch {batch.producer_epoch} "
            f"with sequence number {batch.base_sequence}, not 0",
            expected=0,
            actual=batch.base_sequence,
        )


def _out_of_order(batch: Batch, expected: int) -> RefusedProducer:
    return RefusedProducer(
        ProducerFault.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {batch.producer_id} goes on with sequence number {expected}, "
        f"not {batch.base_sequence}",
        expected=expected,
        actual=batch.base_sequence,
    )
