"""A small client for topics and groups, over the wire that every Kafka client speaks.

async with connect("127.0.0.1:9092") as connection:
    await create_topic(connection, "orders", 12, {"retention.ms": "604800000"})
    for topic in await list_topics(connection): ...
"""

from stratalog.broker.admin.connection import (
    DEFAULT_BOOTSTRAP,
    TIMEOUT_S,
    Connection,
    connect,
    host_and_port,
)
from stratalog.broker.admin.groups import (
    GroupDescription,
    GroupSummary,
    MemberDescription,
    Progress,
    delete_group,
    describe_group,
    list_groups,
)
from stratalog.broker.admin.reset import Move, Target, Where, execute, moves, plan
from stratalog.broker.admin.topics import (
    PartitionDescription,
    Setting,
    TopicDescription,
    TopicSummary,
    add_partitions,
    alter_settings,
    create_topic,
    delete_topic,
    describe_topic,
    list_topics,
)
