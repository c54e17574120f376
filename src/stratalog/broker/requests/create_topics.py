"""CreateTopics: new topics, each for itself, with Kafka's codes and words for what cannot be."""

from collections.abc import Mapping, Sequence

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32

from stratalog.broker.context import BrokerContext, Client
from stratalog.broker.requests.parts import NOT_THROTTLED, repeated, told
from stratalog.broker.requests.registry import Api
from stratalog.broker.topics import (
    Topic,
    assigned_partitions,
    check_factor,
    for_each,
    normal_settings,
    shown_settings,
)
from stratalog.broker.wire import Refused
from stratalog.errors import StratalogError

PARTITIONS_PER_REQUEST_MAX = 10_000
"""As in Kafka."""

CREATED_AT_ONCE_MAX = 16


async def create_topics(
    context: BrokerContext, _: Client, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Create what can be created; say of the rest why it cannot."""
    twice = repeated(topic.name for topic in request.topics)
    total = sum(max(_asked(context, topic), 0) for topic in request.topics)

    async def answer(asked: CreatableTopic) -> CreatableTopicResult:
        try:
            if asked.name in twice:
                raise Refused(ErrorCode.invalid_request, "Duplicate topic name.")
            if total > PARTITIONS_PER_REQUEST_MAX:
                raise Refused(
                    ErrorCode.policy_violation,
                    f"Excessively large number of partitions per request: {total}.",
                    hint=f"Ask for at most {PARTITIONS_PER_REQUEST_MAX} in one request.",
                )
            return await _created(context, asked, validate_only=request.validate_only)
        except StratalogError as error:
            return _refused(asked.name, error)

    # One answer for each name, as Kafka gives it.
    wanted = list({topic.name: topic for topic in request.topics}.values())
    return CreateTopicsResponse(
        throttle_time=NOT_THROTTLED,
        topics=tuple(await for_each(answer, wanted, CREATED_AT_ONCE_MAX)),
    )


async def _created(
    context: BrokerContext, asked: CreatableTopic, *, validate_only: bool
) -> CreatableTopicResult:
    partitions = _checked_partitions(context, asked)
    context.topics.check_new(asked.name, partitions)
    settings = normal_settings({each.name: each.value for each in asked.configs})
    made: Topic | None = None
    if not validate_only:
        made = await context.topics.create(asked.name, partitions, settings)
    return CreatableTopicResult(
        name=asked.name,
        topic_id=made.uuid if made else None,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=i32(partitions),
        replication_factor=i16(1),
        configs=_configs(settings, context.topics.defaults),
    )


def _asked(context: BrokerContext, asked: CreatableTopic) -> int:
    if asked.assignments:
        return len(asked.assignments)
    return (
        context.options.default_partitions if asked.num_partitions == -1 else asked.num_partitions
    )


def _checked_partitions(context: BrokerContext, asked: CreatableTopic) -> int:
    """How many partitions the topic gets, if they can be placed."""
    if asked.assignments:
        if asked.num_partitions != -1:
            raise Refused(
                ErrorCode.invalid_request,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        if asked.replication_factor != -1:
            raise Refused(
                ErrorCode.invalid_request,
                "A manual partition assignment was specified, but replication factor was not set "
                "to -1.",
            )
        placed: dict[int, Sequence[int]] = {
            each.partition_index: each.broker_ids for each in asked.assignments
        }
        if len(placed) != len(asked.assignments):
            raise Refused(
                ErrorCode.invalid_replica_assignment,
                "The manual partition assignment places a partition twice.",
            )
        return assigned_partitions(placed, context.node_id)
    check_factor(asked.replication_factor)
    partitions = _asked(context, asked)
    if partitions < 1:
        raise Refused(
            ErrorCode.invalid_partitions,
            "Number of partitions was set to an invalid non-positive value.",
        )
    return partitions


def _configs(
    settings: Mapping[str, str], defaults: Mapping[str, str]
) -> tuple[CreatableTopicConfigs, ...]:
    return tuple(
        CreatableTopicConfigs(
            name=shown.name,
            value=shown.value,
            read_only=shown.is_read_only,
            config_source=i8(shown.source),
            is_sensitive=False,
        )
        for shown in shown_settings(settings, defaults)
    )


def _refused(name: TopicName, error: StratalogError) -> CreatableTopicResult:
    code, message = told(error)
    return CreatableTopicResult(
        name=name, topic_id=None, error_code=code, error_message=message, configs=()
    )


APIS = (
    Api(
        "CreateTopics",
        first=2,
        request=CreateTopicsRequest,
        response=CreateTopicsResponse,
        handle=create_topics,
    ),
)
