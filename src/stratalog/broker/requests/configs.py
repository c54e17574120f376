"""DescribeConfigs: every setting of a topic or of the broker, with its source and its meaning."""

import enum
from collections.abc import Iterable

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from stratalog.broker.context import BrokerContext, Client
from stratalog.broker.requests.parts import NOT_THROTTLED, found_topic, told
from stratalog.broker.requests.registry import Api
from stratalog.broker.topics import Shown, shown_broker, shown_settings
from stratalog.broker.wire import Refused
from stratalog.errors import StratalogError


class Resource(enum.IntEnum):
    """What settings belong to, by its number on the wire."""

    TOPIC = 2
    BROKER = 4


async def describe_configs(
    context: BrokerContext, _: Client, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Show the settings that were asked for; of other resources say why not."""
    return DescribeConfigsResponse(
        throttle_time=NOT_THROTTLED,
        results=tuple(
            _described(context, request, each)
            for each in dict.fromkeys(request.resources)  # or a small request has a huge answer
        ),
    )


def _described(
    context: BrokerContext, request: DescribeConfigsRequest, asked: DescribeConfigsResource
) -> DescribeConfigsResult:
    code, message = ErrorCode.none, None
    configs: tuple[DescribeConfigsResourceResult, ...] = ()
    try:
        configs = tuple(
            _result(request, shown)
            for shown in _shown(context, asked)
            # Kafka, too, takes no names for all of them.
            if not asked.configuration_keys or shown.name in asked.configuration_keys
        )
    except StratalogError as error:
        code, message = told(error)
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=configs,
    )


def _shown(context: BrokerContext, asked: DescribeConfigsResource) -> Iterable[Shown]:
    kind: int = asked.resource_type
    if kind == Resource.TOPIC:
        topic = found_topic(context, asked.resource_name)
        return shown_settings(topic.note.settings, context.topics.defaults)
    if kind != Resource.BROKER:
        raise Refused(ErrorCode.invalid_request, f"Unexpected resource type {kind}.")
    if asked.resource_name not in ("", str(context.node_id)):
        raise Refused(
            ErrorCode.invalid_request,
            f"Unexpected broker id, expected {context.node_id} or empty string, but received "
            f"{asked.resource_name[:80]!a}",
        )
    if not asked.resource_name:
        return ()  # defaults of all brokers that were set while they ran: there are none
    return shown_broker(context.options, str(context.advertised))


def _result(request: DescribeConfigsRequest, shown: Shown) -> DescribeConfigsResourceResult:
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    if request.include_synonyms:
        synonyms = tuple(
            DescribeConfigsSynonym(name=name, value=value, source=i8(source))
            for name, value, source in shown.synonyms
        )
    return DescribeConfigsResourceResult(
        name=shown.name,
        value=shown.value,
        read_only=shown.is_read_only,
        config_source=i8(shown.source),
        is_sensitive=False,
        synonyms=synonyms,
        config_type=i8(shown.kind),
        documentation=shown.meaning if request.include_documentation else None,
    )


APIS = (
    Api(
        "DescribeConfigs",
        first=1,
        request=DescribeConfigsRequest,
        response=DescribeConfigsResponse,
        handle=describe_configs,
    ),
)
