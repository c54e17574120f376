"""Copying a partition to another replica: what is sent, and what must go first. All pure.

    source                                        replica
    Offer: checkpoint, live set, end, lineage ─►  cuts off what is not the source's; durable
                                              ◄─  Has: what it has now
    live − has, as sparse writes              ─►  acknowledged when durable
    the state, in parts                       ─►  a file; when whole and durable it counts
    entries after the checkpoint              ─►  acknowledged when durable
    End                                       ─►  acknowledged

What a replica needs is a sequence: what lives, then everything above the checkpoint. It is sent in
that order and each write names the index before it. So a replica that was interrupted has a
beginning of it, and a write that does not follow is seen to leave a gap, sparse or not. Where a
replica lacks something below its end, which is left of a copy from another source, or damage, it
cuts off its log there: nothing is ever put in between.

Live entries come before the checkpoint: what it says to live must be there when it counts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from stratalog.errors import Conflict, Corrupt
from stratalog.indexset import INDEX_MAX, IndexSet
from stratalog.segments.format import Entries, Lineage, crc32
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
        """All that the checkpoint was made from, and the entries above it."""
        first = self.lineage.steps[0][0] if self.lineage.steps else self.checkpoint + 1
        above = self.indexes.floor(self.checkpoint + 1)
        return IndexSet(range(first, self.checkpoint + 1)) | above


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a replica does about an offer."""

    cut_after: int | None
    """Everything above it goes first."""
    last: int
    """Where its log ends then."""
    has: IndexSet
    missing: IndexSet
    """What it must be sent, all of it above ``last``."""
    wants_state: bool

    @property
    def answer(self) -> Has:
        return Has(
            indexes=self.has,
            last=self.last,
            wants_state=self.wants_state,
            cut_after=self.cut_after,
        )


def agree(own: ReplicaState, offer: Offer) -> Agreement:
    """Which part of its log a replica keeps, and what it misses.

    The checkpoint is not needed if the replica has a later one, or has every entry from its own
    checkpoint to that of the source: then its state machine gets there by itself.

    ``Corrupt`` if it would have to cut off something that its own checkpoint contains: two
    histories were committed, or entries are lost. ``Conflict`` if the source is behind it.
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
    has = kept | IndexSet(range(1, own.checkpoint + 1))
    between = IndexSet(range(own.checkpoint + 1, offer.checkpoint + 1))
    return Agreement(
        cut_after=last if last < (known.last or 0) else None,
        last=last,
        has=has,
        missing=offer.needed - has,
        wants_state=not between <= kept,
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
    """How many bytes were sent and not yet acknowledged. Acknowledgements come in order."""

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
        """``Corrupt`` if it is not the one that comes next."""
        if not self._sent or self._sent[0][0] != ack.number:
            raise _unexpected(f"an acknowledgement of message {ack.number}")
        self._bytes -= self._sent.popleft()[1]


class Sending:
    """The source's side of one offer, after it was answered: makes the messages, in order."""

    def __init__(self, offer: Offer, has: Has, number: int) -> None:
        """``number`` is that of the last message before. ``Corrupt`` if the answer fits no log."""
        self._lineage = offer.lineage
        self._previous = has.last
        self._crc = 0
        self._state_sent = 0
        self.number = number
        missing = offer.needed - has.indexes
        self.live = missing.limit(offer.checkpoint)
        """What is to be sent before the state."""
        self.rest = missing.floor(offer.checkpoint + 1)
        """And after it."""
        if (missing and (missing.first or 0) <= has.last) or (self.live and not has.wants_state):
            raise _unexpected(f"an answer that lacks {missing!r} and ends at {has.last}")
        if has.wants_state and not offer.checkpoint:
            raise _unexpected("a request for a state that was not offered")
        self._checkpoint = offer.checkpoint

    def put(self, wanted: IndexSet, entries: Entries) -> Put | None:
        """Entries that were read. ``None`` if they are not those that come next of the wanted.

        Then some of them died or were overwritten since they were offered.
        """
        expected = wanted.within(range(self._previous + 1, entries.last + 1))
        if entries.indexes != expected or not self._lineage.numbered(entries.heads):
            return None
        self.number += 1
        made = Put.of(self.number, self._previous, entries)
        self._previous = entries.last
        return made

    def lacks(self, wanted: IndexSet) -> bool:
        """Whether some of them were not put."""
        return (wanted.last or 0) > self._previous

    def state_part(self, data: bytes) -> StatePart:
        """The next bytes of the state."""
        self.number += 1
        self._crc = crc32(data, self._crc)
        made = StatePart(number=self.number, start=self._state_sent, crc=self._crc, body=data)
        self._state_sent += len(data)
        self._previous = max(self._previous, self._checkpoint)
        return made

    def end(self) -> End:
        self.number += 1
        return End(number=self.number)


class Receiving:
    """The replica's side of one offer: whether each message is the one that comes next.

    Whatever is not raises ``Corrupt``, before anything is done about it.
    """

    def __init__(self, offer: Offer, agreement: Agreement, number: int) -> None:
        """``number`` is that of the last message before."""
        self.offer = offer
        self.number = number
        self._lineage = offer.lineage
        self._missing = agreement.missing
        self._live_last = agreement.missing.limit(offer.checkpoint).last or 0
        self._last = agreement.last
        self._wants_state = agreement.wants_state
        self._state_taken = 0
        self._crc = 0

    def put(self, message: Put) -> Entries:
        self._next(message.number)
        entries = message.entries()
        if self._wants_state and entries.last > self.offer.checkpoint:
            raise _unexpected(f"entry {entries.last}, before the checkpoint has come")
        expected = self._missing.within(range(self._last + 1, entries.last + 1))
        if message.previous != self._last or entries.indexes != expected:
            raise _unexpected(f"{entries.indexes!r} after {message.previous}")
        if not self._lineage.numbered(entries.heads):
            raise _unexpected(f"{entries.indexes!r} under other epochs than those offered")
        self._last = entries.last
        return entries

    def state_part(self, message: StatePart) -> bool:
        """Whether it was the last."""
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
                f"the state is damaged before byte {end}: its checksum is another",
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


def _unexpected(what: str) -> Corrupt:
    return Corrupt(
        f"the other side of a copy sent {what}",
        hint="Messages were lost or changed on the way, or its version is another. Copy again.",
    )
