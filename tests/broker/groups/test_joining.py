"""How members come into a group."""

import pytest

from broker.groups.played import Played, stable
from stratalog.broker.groups.calls import Identity

COOPERATIVE = (("cooperative-sticky", b"c"), ("range", b"r"))


def test_the_first_member_leads_and_is_told_everybody() -> None:
    played = Played(initial_delay_s=1.0)
    first, second = played.join(), played.join()
    assert not played.answers
    played.after(2.0)
    leader, follower = played.joined(first), played.joined(second)
    assert (leader.leader, follower.leader) == ("m1", "m1")
    assert [one.member_id for one in leader.members] == ["m1", "m2"]
    assert leader.members[0].metadata == b"range-metadata"
    assert follower.members == ()
    assert leader.generation == follower.generation == 1
    assert (leader.protocol_type, leader.protocol) == ("consumer", "range")


def test_an_empty_group_waits_for_more_members_as_long_as_they_keep_coming() -> None:
    played = Played(initial_delay_s=3.0)
    first = played.join()
    played.after(2.0)
    second = played.join()
    played.after(3.0)
    assert first not in played.answers
    played.after(2.0)
    assert played.joined(first).generation == played.joined(second).generation == 1


def test_an_empty_group_waits_no_longer_than_a_rebalance_may_take() -> None:
    played = Played(initial_delay_s=3.0)
    first = played.join(rebalance_timeout_s=7.0)
    for _ in range(6):
        played.after(1.0)
        played.join(rebalance_timeout_s=7.0)
    played.after(1.5)
    assert len(played.joined(first).members) == 7


def test_a_new_member_is_told_its_id_first_and_joins_with_it() -> None:
    played = Played()
    told = played.joined(played.join(must_know_its_id=True))
    assert (told.error.name, told.member_id) == ("member_id_required", "m1")
    assert len(played.group.roster) == 0
    joined = played.joined(played.join("m1", must_know_its_id=True))
    assert (joined.error.name, joined.generation, joined.leader) == ("none", 1, "m1")


def test_a_static_member_need_not_know_its_id() -> None:
    played = Played()
    assert played.joined(played.join(instance_id="a", must_know_its_id=True)).generation == 1


def test_an_id_that_nobody_joins_with_is_forgotten_after_the_session_timeout() -> None:
    played = Played()
    played.join(must_know_its_id=True, session_timeout_s=10.0)
    played.after(11.0)
    assert played.joined(played.join("m1")).error.name == "unknown_member_id"


def test_a_rebalance_waits_for_a_member_that_was_told_its_id() -> None:
    played = stable(None)
    played.join(must_know_its_id=True, session_timeout_s=6.0)
    played.join("m1", protocols=(("range", b"other"),))
    assert played.group.state.name == "PREPARING"
    newcomer = played.join("m2")
    assert played.joined(newcomer).generation == 2


def test_a_rebalance_goes_on_without_one_that_never_joined_with_its_id() -> None:
    played = stable(None)
    played.join(must_know_its_id=True, session_timeout_s=6.0)
    again = played.join("m1", protocols=(("range", b"other"),))
    played.after(6.5)
    assert [one.member_id for one in played.joined(again).members] == ["m1"]


def test_a_join_completes_early_when_all_members_have_joined_again() -> None:
    played = stable(None, None)
    newcomer = played.join()
    assert played.heartbeat("m1") == "rebalance_in_progress"
    first = played.join("m1")
    assert newcomer not in played.answers
    second = played.join("m2")
    assert {played.joined(one).generation for one in (newcomer, first, second)} == {2}


def test_members_that_do_not_join_again_in_time_are_out() -> None:
    played = stable(None, None)
    newcomer = played.join(rebalance_timeout_s=60.0)
    first = played.join("m1")
    played.beating(61.0, "m2")
    assert [one.member_id for one in played.joined(first).members] == ["m1", "m3"]
    assert played.joined(newcomer).generation == 2
    assert played.heartbeat("m2") == "unknown_member_id"


def test_a_leader_that_does_not_join_again_is_replaced() -> None:
    played = stable(None, None)
    newcomer, second = played.join(), played.join("m2")
    played.after(61.0)
    assert played.joined(newcomer).leader == played.joined(second).leader != "m1"
    assert len({one.member_id for one in played.joined(second).members} - {"m1"}) == 2


def test_a_rebalance_that_nobody_else_joins_ends_with_the_sessions_of_the_silent() -> None:
    played = stable(None, None)
    second = played.join("m2", protocols=(("range", b"other"),))
    played.after(11.0)
    assert played.joined(second).generation == 2
    assert played.joined(second).leader == "m2"


def test_a_join_whose_answer_was_lost_is_answered_again_with_the_same_generation() -> None:
    played = Played(initial_delay_s=1.0)
    played.join()
    played.join()
    played.after(2.0)
    leader, follower = played.joined(played.join("m1")), played.joined(played.join("m2"))
    assert leader.generation == follower.generation == 1
    assert [one.member_id for one in leader.members] == ["m1", "m2"]
    assert follower.members == ()


def test_a_join_with_other_metadata_while_assignments_are_awaited_begins_anew() -> None:
    played = Played(initial_delay_s=1.0)
    played.join()
    played.join()
    played.after(2.0)
    waiting = played.sync("m2")
    played.join("m2", protocols=(("range", b"changed"),))
    assert played.synced(waiting).error.name == "rebalance_in_progress"
    again = played.joined(played.join("m1"))
    assert again.generation == 2
    assert again.members[1].metadata == b"changed"


def test_a_follower_of_a_stable_group_that_joins_unchanged_is_told_what_it_missed() -> None:
    played = stable(None, None)
    assert played.joined(played.join("m2")).generation == 1
    assert played.group.state.name == "STABLE"


def test_a_leader_of_a_stable_group_that_joins_again_asks_for_a_rebalance() -> None:
    played = stable(None, None)
    played.join("m1")
    assert played.group.state.name == "PREPARING"


def test_of_two_joins_of_one_member_the_earlier_is_told_to_come_again() -> None:
    played = stable(None, None)
    earlier = played.join("m1")
    later = played.join("m1")
    assert played.joined(earlier).error.name == "rebalance_in_progress"
    played.join("m2")
    assert played.joined(later).generation == 2


def test_a_join_whose_client_went_away_is_not_waited_for_without_end() -> None:
    played = stable(None)
    ghost = played.join(rebalance_timeout_s=600.0, session_timeout_s=10.0)
    played.beating(301.0, "m1")
    assert played.joined(ghost).error.name == "unknown_member_id"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("", (("range", b""),)), ("consumer", ())],
    ids=["no type", "no protocol"],
)
def test_a_first_member_must_say_how_it_wants_to_work(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    played = Played()
    ticket = played.join(protocol_type=protocol_type, protocols=protocols)
    assert played.joined(ticket).error.name == "inconsistent_group_protocol"


@pytest.mark.parametrize(("protocol_type", "name"), [("connect", "range"), ("consumer", "sticky")])
def test_a_member_must_share_a_protocol_with_all_others(protocol_type: str, name: str) -> None:
    played = stable(None)
    ticket = played.join(protocol_type=protocol_type, protocols=((name, b""),))
    assert played.joined(ticket).error.name == "inconsistent_group_protocol"


def test_the_protocol_is_the_one_with_the_most_votes_that_all_know() -> None:
    played = Played(initial_delay_s=1.0)
    tickets = [
        played.join(protocols=(("a", b""), ("b", b""), ("c", b""))),
        played.join(protocols=(("c", b""), ("b", b""))),
        played.join(protocols=(("x", b""), ("b", b""), ("c", b""))),
        played.join(protocols=(("c", b""), ("b", b""))),
    ]
    played.after(3.0)
    # b, c, b, c: the first named of two with as many votes.
    assert {played.joined(ticket).protocol for ticket in tickets} == {"b"}


def test_a_group_goes_over_to_cooperative_assignment_one_member_at_a_time() -> None:
    played = stable(None, None)
    played.join("m1", protocols=COOPERATIVE)
    second = played.join("m2")
    assert played.joined(second).protocol == "range"
    for member in ("m2", "m1"):
        played.sync(member)
    played.join("m2", protocols=COOPERATIVE)
    first = played.join("m1", protocols=COOPERATIVE)
    assert played.joined(first).protocol == "cooperative-sticky"


def test_a_full_group_takes_nobody_else() -> None:
    played = stable(None, None, members_max=2)
    assert played.joined(played.join()).error.name == "group_max_size_reached"
    assert played.joined(played.join("m2")).error.name == "none"


def test_ids_that_nobody_joins_with_are_bounded() -> None:
    played = Played(members_max=3)
    told = [played.joined(played.join(must_know_its_id=True)).error.name for _ in range(5)]
    assert told == ["member_id_required"] * 3 + ["group_max_size_reached"] * 2
    assert len(played.group.roster.pending) == 3


def test_a_member_that_left_is_unknown() -> None:
    played = stable(None, None)
    assert played.leave(Identity("m2")) == ["none"]
    assert played.joined(played.join("m2")).error.name == "unknown_member_id"


def test_what_members_say_of_themselves_is_bounded() -> None:
    played = stable(None)
    much = (("range", bytes(played.limits.bytes_max)),)
    assert played.joined(played.join(protocols=much)).error.name == "group_max_size_reached"
    half = (("range", bytes(played.limits.bytes_max // 2)),)
    for _ in range(3):
        played.join("m1", protocols=half)
        assert played.group.state.name != "EMPTY"
