"""What a replica keeps and misses of an offer, and which messages it takes: the pure part."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segments.replicas import entries_of
from stratalog.errors import Conflict, Corrupt
from stratalog.indexset import EMPTY, IndexSet
from stratalog.segments import Entries, Entry, Lineage
from stratalog.segments.transfer.copy_rules import Receiving, ReplicaState, Sending, Window, agree
from stratalog.segments.transfer.messages import Ack, End, Has, Offer, Put, StatePart

STATE = b"the state"


def numbers(first: int, last: int) -> IndexSet:
    return IndexSet(range(first, last + 1))


def offer_of(
    checkpoint: int, live: IndexSet, last: int, *steps: tuple[int, int], state: bytes = STATE
) -> Offer:
    return Offer(
        checkpoint=checkpoint,
        live=live,
        last=last,
        steps=steps,
        state_bytes=len(state) if checkpoint else 0,
        state_crc=crc32(state) if checkpoint else 0,
    )


class TestTheGnarlyExample:
    """Follower: 100–1000 in term 1, 1001–1500 in term 2. A snapshot at 2000, in term 3."""

    live = IndexSet.of([100, 600, 1200, 1777])
    follower = ReplicaState(0, numbers(100, 1500), Lineage(((100, 1), (1001, 2))))

    def test_a_follower_that_has_everything_up_to_1500_misses_1777(self) -> None:
        offer = offer_of(2000, self.live, 2000, (100, 1), (1001, 2), (1501, 3))
        has = agree(self.follower, offer)
        assert has.cut_after is None
        assert has.missing(offer) == IndexSet.of([1777])
        assert has.indexes == numbers(100, 1500)
        assert has.wants_state

    def test_a_follower_whose_entries_above_1100_are_stale_misses_1200_and_1777(self) -> None:
        offer = offer_of(2000, self.live, 2000, (100, 1), (1001, 2), (1101, 3))
        has = agree(self.follower, offer)
        assert has.cut_after == 1100
        assert has.missing(offer) == IndexSet.of([1200, 1777])
        assert has.indexes == numbers(100, 1100)

    def test_a_follower_that_was_interrupted_misses_what_has_not_come(self) -> None:
        offer = offer_of(2000, self.live, 2000, (100, 1), (1001, 2), (1501, 3))
        partly = ReplicaState(0, IndexSet.of([100, 600, 1200]), Lineage(((100, 1), (1200, 2))))
        has = agree(partly, offer)
        assert has.cut_after is None
        assert has.missing(offer) == IndexSet.of([1777])

    def test_an_epoch_of_which_a_replica_has_nothing_does_not_part_the_lineages(self) -> None:
        """It has 100 of term 1 and 1777 of term 3, and cannot know where term 2 was."""
        offer = offer_of(2000, IndexSet.of([100, 1777]), 2000, (100, 1), (1001, 2), (1501, 3))
        partly = ReplicaState(0, IndexSet.of([100, 1777]), Lineage(((100, 1), (1777, 3))))
        has = agree(partly, offer)
        assert has.cut_after is None
        assert has.missing(offer) == EMPTY
        assert has.wants_state


def test_an_empty_replica_misses_what_lives_and_everything_above_the_checkpoint() -> None:
    offer = offer_of(8, IndexSet.of([2, 5]), 12, (1, 1))
    has = agree(ReplicaState(0, EMPTY, Lineage()), offer)
    assert has == Has(indexes=EMPTY, last=0, wants_state=True)
    assert has.missing(offer) == IndexSet.of([2, 5, 9, 10, 11, 12])


def test_a_replica_that_can_get_to_the_checkpoint_by_itself_does_not_want_it() -> None:
    """It has every entry from its own checkpoint on, so its state machine applies them."""
    own = ReplicaState(4, IndexSet.of([2]) | numbers(5, 9), Lineage(((1, 1),)))
    offer = offer_of(8, IndexSet.of([2, 5]), 12, (1, 1))
    has = agree(own, offer)
    assert not has.wants_state
    assert has.missing(offer) == numbers(10, 12)


def test_a_replica_that_reaches_the_checkpoint_with_gaps_wants_it() -> None:
    own = ReplicaState(0, IndexSet.of([2, 5, 8]), Lineage(((2, 1),)))
    offer = offer_of(8, IndexSet.of([2, 5, 8]), 12, (1, 1))
    has = agree(own, offer)
    assert has.wants_state
    assert has.missing(offer) == numbers(9, 12)


def test_a_replica_with_a_later_checkpoint_wants_only_what_follows_its_log() -> None:
    own = ReplicaState(10, IndexSet.of([5]) | numbers(11, 12), Lineage(((1, 1),)))
    offer = offer_of(8, IndexSet.of([2, 5]), 15, (1, 1))
    has = agree(own, offer)
    assert not has.wants_state
    assert has.missing(offer) == numbers(13, 15)
    assert has.cut_after is None


def test_a_replica_cuts_off_what_lies_above_something_that_it_misses() -> None:
    """Left of a copy from a source whose checkpoint was later: there 3 had died."""
    own = ReplicaState(0, IndexSet.of([2, 5, 9]), Lineage(((2, 1),)))
    offer = offer_of(8, IndexSet.of([2, 3, 5]), 12, (1, 1))
    has = agree(own, offer)
    assert has.cut_after == 2
    assert has.missing(offer) == IndexSet.of([3, 5, 9, 10, 11, 12])


def test_a_replica_that_is_ahead_of_the_source_cuts_off_what_the_source_has_not() -> None:
    own = ReplicaState(0, numbers(1, 9), Lineage(((1, 1),)))
    offer = offer_of(0, EMPTY, 5, (1, 1))
    has = agree(own, offer)
    assert has.cut_after == 5
    assert has.missing(offer) == EMPTY


def test_two_histories_below_the_checkpoint_of_the_replica_are_corruption() -> None:
    own = ReplicaState(6, numbers(7, 9), Lineage(((1, 1), (5, 2))))
    with pytest.raises(Corrupt, match="two histories") as caught:
        agree(own, offer_of(0, EMPTY, 9, (1, 1), (5, 3)))
    assert (caught.value.expected, caught.value.actual) == (6, 4)


def test_a_live_entry_lost_below_the_checkpoint_of_the_replica_is_corruption() -> None:
    own = ReplicaState(6, IndexSet.of([2]) | numbers(7, 9), Lineage(((1, 1),)))
    with pytest.raises(Corrupt, match="lacks IndexSet\\(5\\)"):
        agree(own, offer_of(8, IndexSet.of([2, 5]), 9, (1, 1)))


def test_a_source_that_is_behind_the_checkpoint_of_the_replica_is_a_conflict() -> None:
    own = ReplicaState(6, numbers(7, 9), Lineage(((1, 1),)))
    with pytest.raises(Conflict, match="below the replica"):
        agree(own, offer_of(0, EMPTY, 5, (1, 1)))


@dataclass(frozen=True)
class Logs:
    """A source, and a replica that has a beginning of its log and something of another's."""

    offer: Offer
    own: ReplicaState
    own_epochs: dict[int, int]


@st.composite
def logs(draw: st.DrawFn) -> Logs:
    last = draw(st.integers(0, 30))
    checkpoint = draw(st.integers(0, last))
    live = IndexSet.of(draw(st.sets(st.integers(1, max(checkpoint, 1))))).limit(checkpoint)
    epochs = _epochs(draw, last, 1)
    offer = offer_of(checkpoint, live, last, *_steps(epochs))
    shared = draw(st.integers(0, last))
    tail = draw(st.integers(0, 6))
    newest = epochs.get(shared, 0)
    theirs = _epochs(draw, tail, max(1, newest), start=shared, other=epochs)
    own_epochs = {index: epochs[index] for index in range(1, shared + 1)} | theirs
    own_checkpoint = draw(st.integers(0, min(shared, checkpoint)))
    lost = draw(st.sets(st.integers(1, 36)))
    own_epochs = {
        index: epoch
        for index, epoch in own_epochs.items()
        if index not in lost or index <= own_checkpoint
    }
    return Logs(
        offer, ReplicaState(own_checkpoint, IndexSet.of(own_epochs), _line(own_epochs)), own_epochs
    )


def _epochs(
    draw: st.DrawFn, count: int, epoch: int, *, start: int = 0, other: dict[int, int] | None = None
) -> dict[int, int]:
    """An epoch for each index. A writer of its own never has an epoch of the other log there."""
    numbered = {}
    for index in range(start + 1, start + count + 1):
        epoch += draw(st.integers(0, 2))
        if other is not None:
            # Another log: its epochs are even, and those of the source odd.
            epoch += epoch % 2
        else:
            epoch += 1 - epoch % 2
        numbered[index] = epoch
    return numbered


def _steps(epochs: dict[int, int]) -> tuple[tuple[int, int], ...]:
    return _line(epochs).steps


def _line(epochs: dict[int, int]) -> Lineage:
    return Lineage().after(0, sorted(epochs.items()))


@given(logs())
def test_a_replica_keeps_only_entries_of_the_source_and_then_misses_the_rest(logs: Logs) -> None:
    offer, own = logs.offer, logs.own
    has = agree(own, offer)
    kept = own.indexes.limit(has.last).floor(own.checkpoint + 1)
    for index in kept:
        assert offer.lineage.epoch_of(index) == logs.own_epochs[index], "it is the source's"
        assert index <= offer.last
    # With what is missing it has all that it needs, and each of that comes after its end.
    assert offer.needed.floor(own.checkpoint + 1) <= kept | has.missing(offer)
    assert not has.missing(offer) & kept
    assert has.missing(offer) <= offer.needed
    first = has.missing(offer).first
    assert first is None or first > has.last
    # The end of its log is a place from which it can go on.
    assert has.last == max(kept.last or 0, own.checkpoint)
    assert (has.cut_after is None) == (has.last == (own.known.last or 0))


@given(logs())
def test_a_replica_never_cuts_off_a_beginning_that_it_shares_and_needs(logs: Logs) -> None:
    offer, own = logs.offer, logs.own
    has = agree(own, offer)
    if has.cut_after is None:
        return
    first_cut = own.known.floor(has.cut_after + 1).first
    assert first_cut is not None
    is_foreign = (
        first_cut > offer.last or offer.lineage.epoch_of(first_cut) != logs.own_epochs[first_cut]
    )
    lacks_before = offer.needed.limit(first_cut).floor(own.checkpoint + 1) - own.indexes
    assert is_foreign or lacks_before


@given(logs())
def test_a_replica_without_the_state_can_apply_every_entry_up_to_the_checkpoint(
    logs: Logs,
) -> None:
    has = agree(logs.own, logs.offer)
    between = numbers(logs.own.checkpoint + 1, logs.offer.checkpoint)
    if not has.wants_state:
        assert between <= logs.own.indexes.limit(has.last)


@given(logs(), st.integers(1, 4), st.integers(1, 5), st.integers(0, 10))
def test_both_sides_agree_on_every_message_up_to_the_end(
    logs: Logs, batch: int, part_bytes: int, state_bytes: int
) -> None:
    state = bytes(range(state_bytes))
    offer = logs.offer
    offer = offer_of(offer.checkpoint, offer.live, offer.last, *offer.steps, state=state)
    has = agree(logs.own, offer)
    sending = Sending(offer, has, count(8))
    receiving = Receiving(offer, has, 7)
    got: list[int] = []

    def put_all(wanted: IndexSet) -> None:
        indexes = list(wanted)
        for start in range(0, len(indexes), batch):
            some = indexes[start : start + batch]
            made = sending.put(wanted, numbered(offer, some))
            assert made is not None
            got.extend(receiving.put(made).indexes)
            wanted = wanted.floor(some[-1] + 1)

    put_all(sending.live)
    if has.wants_state:
        parts = [state[at : at + part_bytes] for at in range(0, len(state), part_bytes)] or [b""]
        ends = [receiving.state_part(sending.state_part(part)) for part in parts]
        assert ends == [False] * (len(parts) - 1) + [True]
    put_all(sending.rest)
    receiving.end(sending.end())
    assert got == list(has.missing(offer))


def numbered(offer: Offer, indexes: list[int]) -> Entries:
    return Entries.of(Entry(each, offer.lineage.epoch_of(each), b"x") for each in indexes)


class TestTheSource:
    offer = offer_of(8, IndexSet.of([2, 5]), 12, (1, 1), (7, 2))
    nothing = Has(indexes=EMPTY, last=0, wants_state=True)

    def test_each_write_names_the_index_before_it(self) -> None:
        sending = Sending(self.offer, self.nothing, count(1))
        first = sending.put(sending.live, entries_of([2], 1))
        second = sending.put(IndexSet.of([5]), entries_of([5], 1))
        sending.state_part(STATE)
        third = sending.put(sending.rest, entries_of([9, 10], 2))
        assert first is not None
        assert second is not None
        assert third is not None
        assert [first.previous, second.previous, third.previous] == [0, 2, 8]

    def test_entries_of_which_one_has_died_are_not_sent(self) -> None:
        sending = Sending(self.offer, self.nothing, count(1))
        assert sending.put(sending.live, entries_of([5], 1)) is None

    def test_entries_that_were_overwritten_are_not_sent(self) -> None:
        sending = Sending(self.offer, self.nothing, count(1))
        assert sending.put(sending.rest, entries_of([9], 3)) is None

    @pytest.mark.parametrize(
        "answer",
        [
            Has(indexes=EMPTY, last=4, wants_state=True),
            Has(indexes=EMPTY, last=0, wants_state=False),
            Has(indexes=IndexSet.of([5]), last=5, wants_state=True),
        ],
    )
    def test_an_answer_that_fits_no_log_is_refused(self, answer: Has) -> None:
        with pytest.raises(Corrupt):
            Sending(self.offer, answer, count(1))

    def test_a_state_is_not_sent_where_there_is_none(self) -> None:
        with pytest.raises(Corrupt, match="not offered"):
            Sending(offer_of(0, EMPTY, 3, (1, 1)), self.nothing, count(1))

    def test_acknowledgements_come_in_order(self) -> None:
        window = Window(100)
        window.sent(1, 60)
        assert not window.is_full()
        window.sent(2, 40)
        assert window.is_full()
        with pytest.raises(Corrupt, match="message 2"):
            window.acknowledged(Ack(number=2))
        window.acknowledged(Ack(number=1))
        assert not window.is_full()
        window.acknowledged(Ack(number=2))
        with pytest.raises(Corrupt):
            window.acknowledged(Ack(number=3))


class TestTheReplica:
    offer = offer_of(8, IndexSet.of([2, 5]), 12, (1, 1), (7, 2))

    def receiving(self) -> Receiving:
        return Receiving(self.offer, agree(ReplicaState(0, EMPTY, Lineage()), self.offer), 0)

    @pytest.mark.parametrize(
        "message",
        [
            Put.of(2, 0, entries_of([2], 1)),
            Put.of(1, 1, entries_of([2], 1)),
            Put.of(1, 0, entries_of([5], 1)),
            Put.of(1, 0, entries_of([2, 4], 1)),
            Put.of(1, 0, entries_of([2], 3)),
            Put.of(1, 0, entries_of([2, 5, 9], 1)),
        ],
        ids=["number", "gap", "left out", "not wanted", "other epoch", "before the checkpoint"],
    )
    def test_entries_that_do_not_come_next_are_refused(self, message: Put) -> None:
        with pytest.raises(Corrupt):
            self.receiving().put(message)

    def with_live(self) -> Receiving:
        receiving = self.receiving()
        receiving.put(Put.of(1, 0, entries_of([2, 5], 1)))
        return receiving

    @pytest.mark.parametrize(
        "message",
        [
            StatePart(number=2, start=1, crc=crc32(b"t"), body=b"t"),
            StatePart(number=3, start=0, crc=crc32(b"t"), body=b"t"),
            StatePart(number=2, start=0, crc=crc32(b"t"), body=b"T"),
            StatePart(number=2, start=0, crc=crc32(STATE + b"!"), body=STATE + b"!"),
            StatePart(number=2, start=0, crc=crc32(b"the STATE"), body=b"the STATE"),
            StatePart(number=2, start=0, crc=0, body=b""),
        ],
        ids=["place", "number", "damaged", "too much", "another state", "nothing"],
    )
    def test_a_part_of_a_state_that_does_not_come_next_is_refused(self, message: StatePart) -> None:
        with pytest.raises(Corrupt):
            self.with_live().state_part(message)

    def test_a_state_before_its_live_entries_is_refused(self) -> None:
        with pytest.raises(Corrupt):
            self.receiving().state_part(StatePart(number=1, start=0, crc=crc32(STATE), body=STATE))

    def test_an_end_before_everything_has_come_is_refused(self) -> None:
        with pytest.raises(Corrupt, match="before everything"):
            self.with_live().end(End(number=2))
