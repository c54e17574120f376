"""Metadata: where the brokers are, which topics there are, who leads their partitions.

Versions 0 to 12. From 10 on the answer has the topics' ids beside their names, and 12 can ask by
id; Java's and librdkafka's clients notice by the id that a topic was deleted and made again. That
is safe although Produce and Fetch know names only: a client uses ids there from Produce 13 and
Fetch 13 on, which are not advertised. 13 adds an error of the whole answer, which nothing here
needs.
"""

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from stratalog.broker.context import BrokerContext, Client
from stratalog.broker.requests.parts import (
    NOT_ASKED,
    NOT_THROTTLED,
    TOPIC_OPERATIONS,
    told,
)
from stratalog.broker.requests.registry import Api
from stratalog.broker.topics import Topic, check_topic_name, for_each
from stratalog.errors import StratalogError

CREATED_AT_ONCE_MAX = 16


async def metadata(
    context: BrokerContext, client: Client, request: MetadataRequest
) -> MetadataResponse:
    """Answer with the topics that were asked for, creating them if that is wanted and allowed."""
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    node = BrokerId(context.node_id)
    if request.topics is None or (client.version == 0 and not request.topics):
        topics = [_described(topic, node, operations) for topic in context.topics.all()]
    else:
        may_create = request.allow_auto_topic_creation and context.options.auto_create

        async def answer(asked: MetadataRequestTopic) -> MetadataResponseTopic:
            found = await _found(context, asked, may_create=may_create)
            if isinstance(found, Topic):
                return _described(found, node, operations)
            return MetadataResponseTopic(
                error_code=found, name=asked.name, topic_id=asked.topic_id, partitions=()
            )

        wanted = list(dict.fromkeys(request.topics))
        topics = await for_each(answer, wanted, CREATED_AT_ONCE_MAX)
    return MetadataResponse(
        throttle_time=NOT_THROTTLED,
        brokers=(
            MetadataResponseBroker(
                node_id=node,
                host=context.advertised.host,
                port=i32(context.advertised.port),
            ),
        ),
        cluster_id=context.cluster_id,
        controller_id=node,
        topics=tuple(topics),
    )


async def _found(
    context: BrokerContext, asked: MetadataRequestTopic, *, may_create: bool
) -> Topic | ErrorCode:
    if asked.name is None:
        if asked.topic_id is None:
            return ErrorCode.unknown_topic_id
        return context.topics.by_id(asked.topic_id) or ErrorCode.unknown_topic_id
    try:
        check_topic_name(asked.name)
        if may_create:
            return await context.topics.ensure(asked.name, context.options.default_partitions)
    except StratalogError as error:
        return told(error)[0]
    return context.topics.get(asked.name) or ErrorCode.unknown_topic_or_partition


def _described(topic: Topic, node: BrokerId, operations: i32) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=TopicName(topic.name),
        topic_id=topic.uuid,
        is_internal=False,
        partitions=tuple(
            MetadataResponsePartition(
                error_code=ErrorCode.none,
                partition_index=i32(number),
                leader_id=node,
                leader_epoch=i32(partition.epoch),
                replica_nodes=(node,),
                isr_nodes=(node,),
            )
            for number, partition in enumerate(topic.partitions)
        ),
        topic_authorized_operations=operations,
    )


APIS = (
    Api("Metadata", first=0, request=MetadataRequest, response=MetadataResponse, handle=metadata),
)
