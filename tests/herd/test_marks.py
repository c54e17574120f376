"""Marks: their bytes, and when one may go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.errors import Corrupt, Invalid
from stratalog.herd import Mark
from stratalog.herd.assignment import assign
from stratalog.herd.dirty_mark import MARK_BYTES_MAX, REINSERTIONS_MAX, put_back, together

U64 = st.integers(0, 2**64 - 1)


@st.composite
def marks(draw: st.DrawFn) -> Mark:
    return Mark(
        log_id=draw(st.binary(min_size=16, max_size=16)).hex(),
        end=draw(U64),
        sweep_epoch=draw(U64),
        first_us=draw(U64),
        reinsertions=draw(st.integers(0, REINSERTIONS_MAX)),
    )


MARK = Mark(log_id="00" * 15 + "2a", end=7, sweep_epoch=3, first_us=1_700_000_000_000_000)


class TestBytes:
    def test_the_bytes_of_a_mark_are_these(self) -> None:
        expected = (
            "01" + "00" * 15 + "2a" + "0000000000000007" + "0000000000000003" + "0000"
        ) + "00060a24181e4000"
        assert MARK.to_bytes().hex() == expected

    @given(marks())
    def test_a_mark_comes_back_and_is_small(self, mark: Mark) -> None:
        data = mark.to_bytes()
        assert len(data) <= MARK_BYTES_MAX
        assert Mark.from_bytes(data) == mark

    @given(st.binary(max_size=60))
    def test_any_bytes_are_a_mark_or_a_typed_error(self, data: bytes) -> None:
        try:
            mark = Mark.from_bytes(data)
        except (Corrupt, Invalid):
            return
        assert mark.to_bytes() == data

    def test_a_newer_version_is_told_apart_from_damage(self) -> None:
        with pytest.raises(Invalid, match="version 2"):
            Mark.from_bytes(b"\x02" + bytes(60))


class TestMayGo:
    @pytest.mark.parametrize(
        ("tail", "epoch", "compacted", "may_go"),
        [
            (7, 3, 7, True),  # its records are compacted
            (9, 3, 7, True),  # so are they here, and the newer ones have marks of their own
            (7, 3, 6, False),
            (5, 3, 5, False),  # it may still be linked
            (5, 4, 5, True),  # it cannot be linked any more, and nothing waits
            (5, 4, 4, False),  # it cannot, but something waits
            (7, 4, 6, False),
        ],
    )
    def test_when(self, tail: int, epoch: int, compacted: int, may_go: bool) -> None:
        assert MARK.may_go(tail=tail, sweep_epoch=epoch, compacted_upto=compacted) is may_go

    @given(st.lists(marks(), min_size=1, max_size=5), U64, U64, U64)
    def test_marks_that_were_put_together_go_no_earlier_than_each_of_them(
        self, several: list[Mark], tail: int, epoch: int, compacted: int
    ) -> None:
        compacted = min(compacted, tail)
        one = together(several)
        if one.may_go(tail=tail, sweep_epoch=epoch, compacted_upto=compacted):
            assert all(
                mark.may_go(tail=tail, sweep_epoch=epoch, compacted_upto=compacted)
                for mark in several
            )

    def test_the_first_time_and_the_count_are_kept(self) -> None:
        later = Mark(log_id=MARK.log_id, end=5, sweep_epoch=9, first_us=2 << 50, reinsertions=4)
        back = put_back(together([later, MARK]))
        assert back == Mark(
            log_id=MARK.log_id, end=7, sweep_epoch=9, first_us=MARK.first_us, reinsertions=5
        )

    def test_the_count_ends_where_its_bytes_do(self) -> None:
        many = Mark(
            log_id=MARK.log_id, end=1, sweep_epoch=1, first_us=1, reinsertions=REINSERTIONS_MAX
        )
        assert put_back(many).reinsertions == REINSERTIONS_MAX


class TestAssignment:
    KEYS = tuple(f"server-{number}/first" for number in range(200))

    def test_everybody_gets_some_and_it_does_not_depend_on_the_order(self) -> None:
        members = ["a", "b", "c"]
        given_to = [assign(key, members) for key in self.KEYS]
        assert {*given_to} == {*members}
        assert given_to == [assign(key, members[::-1]) for key in self.KEYS]
        assert min(given_to.count(member) for member in members) > len(self.KEYS) // 5

    def test_only_the_keys_of_one_who_leaves_move(self) -> None:
        for key in self.KEYS:
            before = assign(key, ["a", "b", "c"])
            if before != "c":
                assert assign(key, ["a", "b"]) == before

    def test_nobody_is_refused(self) -> None:
        with pytest.raises(Invalid):
            assign("key", [])
