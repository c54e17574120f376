"""Assigning work without coordination: rendezvous hashing.

Each member scores each key, and the highest score wins. When a member comes or goes only its own
keys move. Members may disagree about who is there: work that is done twice is settled by a
compare-and-swap.
"""

from collections.abc import Collection
from hashlib import blake2b

from stratalog.errors import Invalid


def assign(key: str, members: Collection[str]) -> str:
    """The member that is to do the work of this key."""
    if not members:
        raise Invalid("there is nobody to assign work to", hint="Name at least one worker.")
    return max(members, key=lambda member: (_score(member, key), member))


def _score(member: str, key: str) -> bytes:
    return blake2b(key.encode(), key=blake2b(member.encode(), digest_size=32).digest()).digest()
