"""DeleteTopics: by name, and from version 6 on by name or by id."""

from collections.abc import Sequence
from uuid import UUID

from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as ByName
from kio.schema.delete_topics.v5.response import DeletableTopicResult as NamedResult
from kio.schema.delete_topics.v5.response import DeleteTopicsResponse as NamedResponse
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from stratalog.broker.context import BrokerContext, Client
from stratalog.broker.requests.parts import NOT_THROTTLED, repeated, told
from stratalog.broker.requests.registry import Api
from stratalog.broker.topics import for_each
from stratalog.broker.wire import Refused
from stratalog.errors import StratalogError

DELETED_AT_ONCE_MAX = 16


async def delete_topics(
    context: BrokerContext, _: Client, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete what is there; say of the rest why it cannot be."""
    return DeleteTopicsResponse(
        throttle_time=NOT_THROTTLED, responses=tuple(await _results(context, request.topics))
    )


async def delete_topics_by_name(
    context: BrokerContext, _: Client, request: ByName
) -> NamedResponse:
    """The same, up to version 5."""
    asked = [DeleteTopicState(name=name, topic_id=None) for name in request.topic_names]
    return NamedResponse(
        throttle_time=NOT_THROTTLED,
        responses=tuple(
            NamedResult(
                name=result.name or TopicName(""),
                error_code=result.error_code,
                error_message=result.error_message,
            )
            for result in await _results(context, asked)
        ),
    )


async def _results(
    context: BrokerContext, asked: Sequence[DeleteTopicState]
) -> list[DeletableTopicResult]:
    twice = repeated((topic.name, topic.topic_id) for topic in asked)

    async def answer(topic: DeleteTopicState) -> DeletableTopicResult:
        name, topic_id = topic.name, topic.topic_id
        try:
            if (name, topic_id) in twice:
                what = "name" if topic_id is None else "id"
                raise Refused(ErrorCode.invalid_request, f"Duplicate topic {what}.")
            deleted = await context.topics.delete(*_which(context, name, topic_id))
        except StratalogError as error:
            code, message = told(error)
            return DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=code, error_message=message
            )
        return DeletableTopicResult(
            name=TopicName(deleted.name), topic_id=deleted.uuid, error_code=ErrorCode.none
        )

    return await for_each(answer, list(dict.fromkeys(asked)), DELETED_AT_ONCE_MAX)


def _which(
    context: BrokerContext, name: str | None, topic_id: UUID | None
) -> tuple[str, UUID | None]:
    if name is not None and topic_id is not None:
        raise Refused(
            ErrorCode.invalid_request, "You may not specify both topic name and topic id."
        )
    if name is not None:
        return name, None
    if topic_id is None:
        raise Refused(ErrorCode.invalid_request, "Neither topic name nor id was specified.")
    topic = context.topics.by_id(topic_id)
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_id, "This server does not host this topic ID.")
    return topic.name, topic_id


APIS = (
    Api(
        "DeleteTopics",
        first=1,
        request=ByName,
        response=NamedResponse,
        handle=delete_topics_by_name,
    ),
    Api(
        "DeleteTopics",
        first=6,
        request=DeleteTopicsRequest,
        response=DeleteTopicsResponse,
        handle=delete_topics,
    ),
)
