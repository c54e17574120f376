"""Topics: names, settings, partitions, and how long they keep records.

Topics           the catalogue of an open broker; Topic is one
DiskNotes        the small durable values of a node's disk, to which a topic's note belongs
TopicSettings    what the settings of a topic mean for the rest of the broker

check_topic_name, is_topic_name    Kafka's rule for names
normal_settings, replaced, changed, Change    settings, as they are given and changed
shown_settings, shown_broker, Shown           settings, as they are shown
assigned_partitions, check_factor, check_placement    where a client may place partitions
for_each                                      the same for many things, a few at a time
"""

from stratalog.broker.topics.alter import Change, Operation, changed, replaced
from stratalog.broker.topics.catalogue import Topics
from stratalog.broker.topics.describe import Shown, Source, shown_broker, shown_settings
from stratalog.broker.topics.disk_home import DiskNotes
from stratalog.broker.topics.names import InvalidTopicName, check_topic_name, is_topic_name
from stratalog.broker.topics.placement import assigned_partitions, check_factor, check_placement
from stratalog.broker.topics.settings import (
    SETTINGS,
    InvalidSetting,
    TimestampType,
    TopicSettings,
    normal_settings,
)
from stratalog.broker.topics.together import for_each
from stratalog.broker.topics.topic import Topic

__all__ = [
    "SETTINGS",
    "Change",
    "DiskNotes",
    "InvalidSetting",
    "InvalidTopicName",
    "Operation",
    "Shown",
    "Source",
    "TimestampType",
    "Topic",
    "TopicSettings",
    "Topics",
    "assigned_partitions",
    "changed",
    "check_factor",
    "check_placement",
    "check_topic_name",
    "for_each",
    "is_topic_name",
    "normal_settings",
    "replaced",
    "shown_broker",
    "shown_settings",
]
