"""Assignments, heartbeats, commits, and how members go."""

from collections.abc import Callable

import pytest

from broker.groups.played import Played, stable
from stratalog.broker.groups.calls import Identity


def completing(*, session_timeout_s: float = 10.0) -> Played:
    """A group of ``m1`` (which leads) and ``m2`` whose assignments are awaited."""
    played = Played(initial_delay_s=1.0)
    for _ in range(2):
        played.join(session_timeout_s=session_timeout_s, rebalance_timeout_s=30.0)
    played.after(2.0)
    return played


def test_a_follower_that_asks_first_waits_for_the_leader() -> None:
    played = completing()
    follower = played.sync("m2")
    assert follower not in played.answers
    leader = played.sync("m1", ("m1", b"one"), ("m2", b"two"), ("stranger", b"three"))
    assert played.synced(leader).assignment == b"one"
    assert played.synced(follower).assignment == b"two"
    assert played.synced(follower).protocol == "range"
    assert played.group.state.name == "STABLE"


def test_a_follower_that_asks_later_is_answered_at_once() -> None:
    played = completing()
    played.sync("m1", ("m2", b"two"))
    assert played.synced(played.sync("m2")).assignment == b"two"
    assert played.synced(played.sync("m2")).assignment == b"two"


def test_a_member_that_the_leader_left_out_gets_nothing() -> None:
    played = completing()
    played.sync("m1", ("m1", b"all"))
    assert played.synced(played.sync("m2")).assignment == b""


def test_only_the_leader_brings_assignments() -> None:
    played = completing()
    played.sync("m2", ("m2", b"everything"))
    assert played.group.state.name == "COMPLETING"
    played.sync("m1", ("m1", b"one"))
    assert played.synced(played.sync("m2")).assignment == b""


@pytest.mark.parametrize(
    ("member", "generation", "protocol_type", "protocol", "error"),
    [
        ("m2", 0, None, None, "illegal_generation"),
        ("m2", 2, None, None, "illegal_generation"),
        ("m9", 1, None, None, "unknown_member_id"),
        ("m2", 1, "connect", None, "inconsistent_group_protocol"),
        ("m2", 1, "consumer", "sticky", "inconsistent_group_protocol"),
    ],
)
def test_a_sync_that_does_not_fit_is_refused(
    member: str, generation: int, protocol_type: str | None, protocol: str | None, error: str
) -> None:
    played = completing()
    ticket = played.sync(
        member, generation=generation, protocol_type=protocol_type, protocol=protocol
    )
    assert played.synced(ticket).error.name == error


def test_a_sync_during_a_rebalance_is_told_of_it() -> None:
    played = stable(None, None)
    played.join()
    assert played.synced(played.sync("m1")).error.name == "rebalance_in_progress"


def test_members_that_never_ask_for_their_assignment_are_out() -> None:
    played = completing(session_timeout_s=100.0)
    leader = played.sync("m1", ("m1", b"one"))
    assert played.synced(leader).error.name == "none"
    played.beating(31.0, "m1", "m2")
    assert played.heartbeat("m2") == "unknown_member_id"
    assert played.joined(played.join("m1")).members[0].member_id == "m1"


def test_a_leader_that_never_brings_assignments_is_replaced() -> None:
    played = completing(session_timeout_s=100.0)
    follower = played.sync("m2")
    played.after(31.0)
    assert played.synced(follower).error.name == "rebalance_in_progress"
    assert played.joined(played.join("m2")).leader == "m2"


def test_who_waits_for_the_leader_need_not_send_heartbeats() -> None:
    played = completing(session_timeout_s=5.0)
    follower = played.sync("m2")
    for _ in range(20):
        played.after(1.0)
        played.heartbeat("m1")
    played.sync("m1", ("m2", b"two"))
    assert played.synced(follower).assignment == b"two"
    played.after(5.5)
    assert played.heartbeat("m2") == "unknown_member_id"


def test_a_silent_member_is_out_and_the_others_are_told() -> None:
    played = stable(None, None)
    played.beating(11.0, "m1")
    assert played.heartbeat("m1") == "rebalance_in_progress"
    assert played.heartbeat("m2") == "unknown_member_id"


def test_heartbeats_say_what_a_member_must_do() -> None:
    played = completing()
    assert played.heartbeat("m1") == "none"
    assert played.heartbeat("m1", generation=0) == "illegal_generation"
    assert played.heartbeat("m9") == "unknown_member_id"
    played.sync("m1")
    assert played.heartbeat("m1") == "none"
    played.join()
    assert played.heartbeat("m1") == "rebalance_in_progress"


def test_a_group_whose_last_member_left_is_empty_in_a_generation_of_its_own() -> None:
    played = stable(None)
    assert played.leave(Identity("m1")) == ["none"]
    assert (played.group.state.name, played.group.generation) == ("EMPTY", 2)
    assert played.records[-1].members == ()
    assert played.records[-1].generation == 2


def test_members_leave_together_and_by_their_static_names() -> None:
    played = stable("a", "b", None)
    gone = played.leave(Identity("", "a"), Identity("m2", "b"), Identity("m9"), Identity("", "z"))
    assert gone == ["none", "none", "unknown_member_id", "unknown_member_id"]
    assert [member.member_id for member in played.group.roster] == ["m3"]


def test_one_that_was_told_its_id_may_leave_with_it() -> None:
    played = Played()
    played.join(must_know_its_id=True)
    assert played.leave(Identity("m1")) == ["none"]
    assert played.joined(played.join("m1")).error.name == "unknown_member_id"


def test_a_member_that_leaves_during_a_rebalance_is_not_waited_for() -> None:
    played = stable(None, None)
    newcomer, first = played.join(), played.join("m1")
    played.leave(Identity("m2"))
    assert played.joined(newcomer).generation == played.joined(first).generation == 2


@pytest.mark.parametrize(
    ("state", "who", "error"),
    [
        ("empty", Identity(""), "none"),
        ("empty", Identity("m1", None, 1), "unknown_member_id"),
        ("stable", Identity("m1", None, 1), "none"),
        ("stable", Identity(""), "unknown_member_id"),
        ("stable", Identity("m1", None, 0), "illegal_generation"),
        ("stable", Identity("m9", None, 1), "unknown_member_id"),
        ("preparing", Identity("m1", None, 1), "none"),
        ("completing", Identity("m1", None, 1), "rebalance_in_progress"),
    ],
)
def test_who_may_commit(state: str, who: Identity, error: str) -> None:
    made: dict[str, Callable[[], Played]] = {
        "empty": Played,
        "stable": lambda: stable(None, None),
        "preparing": lambda: stable(None, None),
        "completing": completing,
    }
    played = made[state]()
    if state == "preparing":
        played.join()
    assert played.may_commit(who) == error


def test_a_process_that_stood_still_throws_nobody_out_for_it() -> None:
    played = stable(None, None)
    played.now += 3600.0
    played.group.postpone(3600.0)
    played.after(0.0)
    assert played.heartbeat("m1") == played.heartbeat("m2") == "none"
