"""The protocol of a copy: what is sent, and what the replica must cut off first. Pure.

    source                                        replica
    Offer: checkpoint, live set, end, lineage ─►  cuts off what is not the source's; durable
                                              ◄─  Has: what it has now
    live − has, as sparse writes              ─►  acknowledged when durable
    the state, in parts                       ─►  a file; when whole and durable it counts
    entries after the checkpoint              ─►  acknowledged when durable
    End                                       ─►  acknowledged

A replica needs a sequence: the live entries, then everything above the checkpoint. It is sent in
this order, and each write names the index before it. It follows:

1. An interrupted replica has a prefix of the sequence.
2. A write that does not follow is detected as a gap, sparse or not.
3. A replica that lacks an entry below its end cuts off its log there, since nothing is inserted.
   Such a log is left by a copy from another source, or by damage.

Live entries are sent before the checkpoint: they must be there when the checkpoint counts.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from stratalog.errors import Conflict, Corrupt
from stratalog.indexset import INDEX_MAX, IndexSet
from stratalog.segments.format import Entries, Lineage, crc32, meets
from stratalog.segments.transfer.messages import Ack, End, Has, Offer, Put, StatePart


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """What the log of a replica holds."""

    checkpoint: int
    """Its index; 0 if there is none."""
    indexes: IndexSet
    """Of the entries that are there."""
    lineage: Lineage

    @property
    def known(self) -> IndexSet:
        """The indexes that the checkpoint was made from, and those of the entries above it."""
        first = self.lineage.steps[0][0] if self.lineage.steps else self.checkpoint + 1
        above = self.indexes.floor(self.checkpoint + 1)
        return IndexSet(range(first, self.checkpoint + 1)) | above


def agree(own: ReplicaState, offer: Offer) -> Has:
    """Which part of its log a replica keeps: its answer to an offer.

    The state is not needed if the replica has a later checkpoint, or every entry between its own
    checkpoint and the source's: then its state machine gets there by itself.

    ``Corrupt`` if the cut would be below its own checkpoint: two histories were committed, or
    entries are lost. ``Conflict`` if the source is behind the replica.
    """
    known = own.known
    shared = own.lineage.shared_with(offer.lineage, known, INDEX_MAX)
    if shared < own.checkpoint:
        raise Corrupt(
            f"the replica's log leaves the source's after {shared}, below its own checkpoint at "
            f"{own.checkpoint}: these are two histories",
            hint="Find out which is the right one. To take the source's, remove the partition at "
            "the replica and copy it anew.",
            expected=own.checkpoint,
            actual=shared,
        )
    if offer.last < own.checkpoint:
        raise Conflict(
            f"the source ends at {offer.last}, below the replica's checkpoint at {own.checkpoint}",
            hint="The replica is ahead. Copy from one that has as much as it has.",
            expected=own.checkpoint,
            actual=offer.last,
        )
    if own.checkpoint < offer.checkpoint:
        _must_have(own, offer.live.limit(own.checkpoint))
    kept = known.limit(min(shared, offer.last))
    gap = (offer.needed.floor(own.checkpoint + 1) - kept).first
    if gap is not None:
        kept = kept.limit(gap - 1)
    last = max(kept.last or 0, own.checkpoint)
    between = IndexSet(range(own.checkpoint + 1, offer.checkpoint + 1))
    return Has(
        indexes=kept | IndexSet(range(1, own.checkpoint + 1)),
        last=last,
        wants_state=not between <= kept,
        cut_after=last if last < (known.last or 0) else None,
    )


def _must_have(own: ReplicaState, live: IndexSet) -> None:
    lost = live - own.indexes
    if lost:
        raise Corrupt(
            f"the replica lacks {lost!r}, below its own checkpoint at {own.checkpoint}: at the "
            "source it lives",
            hint="Keep the data directory of the replica. Remove the partition there and copy it "
            "anew.",
            expected=lost,
            actual=own.checkpoint,
        )


class Window:
    """The bytes in flight. Acknowledgements come in order."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._sent: deque[tuple[int, int]] = deque()
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._sent)

    def is_full(self) -> bool:
        return self._bytes >= self._bytes_max

    def sent(self, number: int, size: int) -> None:
        self._sent.append((number, size))
        self._bytes += size

    def acknowledged(self, ack: Ack) -> None:
        """``Corrupt`` if it is not the next one."""
        if not self._sent or self._sent[0][0] != ack.number:
            raise _unexpected(f"an acknowledgement of message {ack.number}")
        self._bytes -= self._sent.popleft()[1]


class Sending:
    """The source's side of one offer, after the answer: makes the messages in order."""

    def __init__(self, offer: Offer, has: Has, numbers: Iterator[int]) -> None:
        """``numbers`` are those of the messages to come. ``Corrupt`` if no log fits the answer."""
        self._lineage = offer.lineage
        self._previous = has.last
        self._crc = 0
        self._state_sent = 0
        self._numbers = numbers
        missing = has.missing(offer)
        self.live = missing.limit(offer.checkpoint)
        """To be sent before the state."""
        self.rest = missing.floor(offer.checkpoint + 1)
        """To be sent after the state."""
        if (missing and (missing.first or 0) <= has.last) or (self.live and not has.wants_state):
            raise _unexpected(f"an answer that lacks {missing!r} and ends at {has.last}")
        if has.wants_state and not offer.checkpoint:
            raise _unexpected("a request for a state that was not offered")
        self._checkpoint = offer.checkpoint

    def put(self, wanted: IndexSet, entries: Entries) -> Put | None:
        """The message with entries that were read. ``None`` if they are not the next wanted ones.

        Then some were dropped or overwritten since they were offered.
        """
        are_next = _are_next(entries, wanted, self._previous)
        if not are_next or not self._lineage.numbered(entries.heads):
            return None
        made = Put.of(next(self._numbers), self._previous, entries)
        self._previous = entries.last
        return made

    def lacks(self, wanted: IndexSet) -> bool:
        """Whether some of them were not sent."""
        return (wanted.last or 0) > self._previous

    def state_part(self, data: bytes) -> StatePart:
        """The next bytes of the state."""
        self._crc = crc32(data, self._crc)
        number = next(self._numbers)
        made = StatePart(number=number, start=self._state_sent, crc=self._crc, body=data)
        self._state_sent += len(data)
        self._previous = max(self._previous, self._checkpoint)
        return made

    def end(self) -> End:
        return End(number=next(self._numbers))


class Receiving:
    """The replica's side of one offer: verifies that each message is the next one.

    Any other raises ``Corrupt`` before it has an effect.
    """

    def __init__(self, offer: Offer, has: Has, number: int) -> None:
        """``number`` is that of the last message before."""
        self.offer = offer
        self.number = number
        self._lineage = offer.lineage
        self._missing = has.missing(offer)
        self._live_last = self._missing.limit(offer.checkpoint).last or 0
        self._last = has.last
        self._wants_state = has.wants_state
        self._state_taken = 0
        self._crc = 0

    def put(self, message: Put) -> Entries:
        self._next(message.number)
        entries = message.entries()
        if self._wants_state and entries.last > self.offer.checkpoint:
            raise _unexpected(f"entry {entries.last}, before the checkpoint has come")
        are_next = _are_next(entries, self._missing, self._last)
        if message.previous != self._last or not are_next:
            raise _unexpected(f"{entries.indexes!r} after {message.previous}")
        if not self._lineage.numbered(entries.heads):
            raise _unexpected(f"{entries.indexes!r} under other epochs than those offered")
        self._last = entries.last
        return entries

    def state_part(self, message: StatePart) -> bool:
        """Returns whether it was the last part."""
        self._next(message.number)
        total = self.offer.state_bytes
        end = message.start + len(message.body)
        self._crc = crc32(message.body, self._crc)
        if (
            not self._wants_state
            or self._last < self._live_last
            or message.start != self._state_taken
            or end > total
            or (not message.body and total)
        ):
            raise _unexpected(f"bytes {message.start} to {end} of a state of {total}")
        if message.crc != self._crc or (end == total and self._crc != self.offer.state_crc):
            raise Corrupt(
                f"the state is damaged before byte {end}: its checksum does not match",
                hint="It was changed on the way, or at the source. Copy again.",
            )
        self._state_taken = end
        if end < total:
            return False
        self._wants_state = False
        self._last = max(self._last, self.offer.checkpoint)
        return True

    def end(self, message: End) -> None:
        self._next(message.number)
        if (self._missing.last or 0) > self._last or self._wants_state:
            raise _unexpected("the end, before everything has come")

    def _next(self, number: int) -> None:
        if number != self.number + 1:
            raise _unexpected(f"message {number} after {self.number}")
        self.number = number


def _are_next(entries: Entries, wanted: IndexSet, previous: int) -> bool:
    """Whether they are those that cover the next wanted indexes, and no others.

    A live set may name any index of a span; an entry is sent whole.
    """
    near = wanted.within(range(previous + 1, entries.last + 1))
    are_wanted = bool(meets(near, entries.heads).all())
    return entries.first > previous and near <= entries.indexes and are_wanted


def _unexpected(what: str) -> Corrupt:
    return Corrupt(
        f"the other side of a copy sent {what}",
        hint="Messages were lost or changed on the way, or its version is another. Copy again.",
    )
