"""Consumer groups: Kafka's classic group protocol, and the offsets that groups commit."""

from stratalog.broker.groups.calls import (
    Identity,
    JoinCall,
    Joined,
    JoinedMember,
    SyncCall,
    Synced,
)
from stratalog.broker.groups.coordinator import Groups
from stratalog.broker.groups.generations import State
from stratalog.broker.groups.group import Group
from stratalog.broker.groups.offsets import Commit
from stratalog.broker.groups.stored import StoredOffset
from stratalog.broker.groups.subscription import subscribed_topics

__all__ = [
    "Commit",
    "Group",
    "Groups",
    "Identity",
    "JoinCall",
    "Joined",
    "JoinedMember",
    "State",
    "StoredOffset",
    "SyncCall",
    "Synced",
    "subscribed_topics",
]
