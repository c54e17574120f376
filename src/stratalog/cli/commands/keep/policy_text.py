"""What a policy says, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.cli import output

if TYPE_CHECKING:
    from stratalog.objectlog import Policy


def lines(policy: Policy | None) -> list[str]:
    """What it says, and how far it has been applied."""
    assert policy is not None
    text = rules(policy)
    if policy.live is not None:
        judged = "not asked yet" if policy.judged is None else f"asked up to {policy.judged:,}"
        text.append(f"{'state':<10}{judged}")
    if policy.epoch_us is not None:
        text.append(f"{'set':<10}{output.moment(policy.epoch_us)} by {policy.writer}")
    return text


def rules(policy: Policy) -> list[str]:
    lines: list[str] = []
    live, retain = policy.live, policy.retain
    if live is not None and live.key is not None:
        lines.append(f"{'live':<10}the last record of each {live.key}")
        if live.tombstone is not None:
            grace = "a day" if live.grace_s is None else f"{live.grace_s:,.0f} s"
            lines.append(f"{'':<10}a tombstone ({live.tombstone}) for {grace}")
    elif live is not None and live.sql is not None:
        lines.append(f"{'live':<10}{live.sql}")
    elif live is not None:
        lines.append(f"{'live':<10}by a rule of a newer version")
    if retain is not None:
        parts = [] if retain.age_s is None else [f"{_lasting(retain.age_s)}"]
        parts += [] if retain.bytes is None else [f"at most {output.size(retain.bytes)}"]
        lines.append(f"{'retain':<10}{', '.join(parts)}")
    if live is not None:
        lines.append(
            f"{'when':<10}less than {policy.live_share_min:g} of a fragment lives, "
            f"{output.count(policy.new_records_min, 'new record')} or more"
        )
    return lines


def _lasting(seconds: float) -> str:
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= size and seconds % size == 0:
            return output.count(int(seconds // size), unit)
    return f"{seconds:g} seconds"
