"""Members with names of their own, which outlive their processes."""

import pytest

from broker.groups.played import Played, stable
from stratalog.broker.groups.calls import Identity


def test_one_that_comes_back_takes_over_its_assignment_without_a_rebalance() -> None:
    played = stable("a", "b")
    back = played.joined(played.join(instance_id="b", may_skip_assignment=True))
    assert (back.error.name, back.generation, back.member_id) == ("none", 1, "m3")
    assert (back.leader, back.skip_assignment) == ("m1", False)
    assert played.heartbeat("m1") == "none"
    assert played.synced(played.sync("m3", instance_id="b")).assignment == b"for-m2"
    assert played.records[-1].members[-1].member_id == "m3"


def test_a_leader_that_comes_back_leads_and_need_not_assign_again() -> None:
    played = stable("a", "b")
    back = played.joined(played.join(instance_id="a", may_skip_assignment=True))
    assert (back.leader, back.skip_assignment) == ("m3", True)
    assert {one.member_id for one in back.members} == {"m3", "m2"}


def test_a_leader_of_an_older_client_that_comes_back_does_not_know_that_it_leads() -> None:
    played = stable("a", "b")
    back = played.joined(played.join(instance_id="a"))
    assert (back.leader, back.member_id, back.members) == ("m1", "m3", ())
    assert played.group.roster.leader == "m3"


@pytest.mark.parametrize("call", ["join", "sync", "heartbeat", "commit", "leave"])
def test_whoever_still_uses_the_old_id_is_fenced(call: str) -> None:
    played = stable("a", "b")
    played.join(instance_id="b")
    who = Identity("m2", "b", 1)
    error = {
        "join": lambda: played.joined(played.join("m2", instance_id="b")).error.name,
        "sync": lambda: played.synced(played.sync("m2", instance_id="b")).error.name,
        "heartbeat": lambda: played.group.heartbeat(who, played.now).name,
        "commit": lambda: played.may_commit(who),
        "leave": lambda: played.leave(who)[0],
    }[call]()
    assert error == "fenced_instance_id"


def test_a_waiting_join_of_the_old_id_is_fenced() -> None:
    played = stable("a", "b")
    played.join()
    old = played.join("m2", instance_id="b")
    new = played.join(instance_id="b")
    assert played.joined(old).error.name == "fenced_instance_id"
    played.join("m1", instance_id="a")
    assert played.joined(new).generation == 2


def test_a_waiting_sync_of_the_old_id_is_fenced_and_the_group_joins_again() -> None:
    played = Played(initial_delay_s=1.0)
    played.join(instance_id="a")
    played.join(instance_id="b")
    played.after(2.0)
    old = played.sync("m2", instance_id="b")
    played.join(instance_id="b")
    assert played.synced(old).error.name == "fenced_instance_id"
    # The leader has been told the old id: what it assigns would miss the new one.
    assert played.group.state.name == "PREPARING"


def test_one_that_comes_back_with_another_first_choice_begins_a_rebalance() -> None:
    played = stable("a", protocols=(("range", b""), ("sticky", b"")))
    back = played.joined(played.join(instance_id="a", protocols=(("sticky", b""), ("range", b""))))
    assert (back.generation, back.protocol) == (2, "sticky")


def test_an_unknown_static_name_with_an_id_is_unknown() -> None:
    played = stable("a")
    assert played.joined(played.join("m1", instance_id="z")).error.name == "unknown_member_id"


def test_a_rebalance_keeps_static_members_until_their_sessions_end() -> None:
    played = stable("a", "b")
    newcomer = played.join(rebalance_timeout_s=60.0)
    first = played.join("m1", instance_id="a")
    played.beating(60.0, "m2")
    assert {one.member_id for one in played.joined(first).members} == {"m1", "m2", "m3"}
    assert played.joined(newcomer).generation == 2


def test_the_leader_among_static_members_is_one_that_has_joined() -> None:
    played = stable("a", "b")
    newcomer = played.join()
    played.beating(60.0, "m1", "m2")
    assert played.joined(newcomer).leader == "m3"
