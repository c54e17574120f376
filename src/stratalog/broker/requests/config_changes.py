"""AlterConfigs and IncrementalAlterConfigs: the settings of topics; a broker's are fixed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kio.schema.alter_configs.v2.request import AlterConfigsRequest
from kio.schema.alter_configs.v2.request import AlterConfigsResource as ReplacedResource
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse as ReplacedResult
from kio.schema.alter_configs.v2.response import AlterConfigsResponse
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from stratalog.broker.context import BrokerContext, Client
from stratalog.broker.requests.configs import Resource
from stratalog.broker.requests.parts import NOT_THROTTLED, found_topic, repeated, told
from stratalog.broker.requests.registry import Api
from stratalog.broker.topics import Change, changed, for_each, replaced
from stratalog.broker.wire import Refused
from stratalog.errors import StratalogError

CHANGED_AT_ONCE_MAX = 16

Decide = Callable[[Mapping[str, str]], dict[str, str]]
"""From the settings that a topic has to those that it gets."""


class Named(Protocol):
    """A resource of either request."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one resource."""

    code: ErrorCode = ErrorCode.none
    message: str | None = None


async def alter_configs(
    context: BrokerContext, _: Client, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Replace all settings of a topic by those that are given."""
    twice = repeated((each.resource_type, each.resource_name) for each in request.resources)

    async def answer(asked: ReplacedResource) -> ReplacedResult:
        def decide(_: Mapping[str, str]) -> dict[str, str]:
            return replaced({each.name: each.value for each in asked.configs})

        is_twice = (asked.resource_type, asked.resource_name) in twice
        outcome = await _apply(context, asked, decide, is_twice, request.validate_only)
        return ReplacedResult(
            error_code=outcome.code,
            error_message=outcome.message,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )

    return AlterConfigsResponse(
        throttle_time=NOT_THROTTLED,
        responses=tuple(await for_each(answer, request.resources, CHANGED_AT_ONCE_MAX)),
    )


async def incremental_alter_configs(
    context: BrokerContext, _: Client, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change the settings that are named: set them, reset them, add to and take from lists."""
    twice = repeated((each.resource_type, each.resource_name) for each in request.resources)

    async def answer(asked: AlterConfigsResource) -> AlterConfigsResourceResponse:
        changes = [
            Change(each.name, int(each.config_operation), each.value) for each in asked.configs
        ]

        def decide(present: Mapping[str, str]) -> dict[str, str]:
            return changed(present, context.topics.defaults, changes)

        is_twice = (asked.resource_type, asked.resource_name) in twice
        outcome = await _apply(context, asked, decide, is_twice, request.validate_only)
        return AlterConfigsResourceResponse(
            error_code=outcome.code,
            error_message=outcome.message,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )

    return IncrementalAlterConfigsResponse(
        throttle_time=NOT_THROTTLED,
        responses=tuple(await for_each(answer, request.resources, CHANGED_AT_ONCE_MAX)),
    )


async def _apply(
    context: BrokerContext, asked: Named, decide: Decide, is_twice: bool, validate_only: bool
) -> Outcome:
    """Change one topic's settings, or only say whether it could be done."""
    try:
        if is_twice:
            raise Refused(ErrorCode.invalid_request, "Each resource must appear at most once.")
        if asked.resource_type == Resource.BROKER:
            raise Refused(
                ErrorCode.invalid_request,
                "The settings of a running broker do not change.",
                hint="Start it again with other options.",
            )
        if asked.resource_type != Resource.TOPIC:
            raise Refused(
                ErrorCode.invalid_request, f"Unexpected resource type {asked.resource_type}."
            )
        topic = found_topic(context, asked.resource_name)
        if validate_only:
            decide(topic.note.settings)
        else:
            await context.topics.configure(topic.name, decide)
    except StratalogError as error:
        return Outcome(*told(error))
    return Outcome()


APIS = (
    Api(
        "AlterConfigs",
        first=0,
        request=AlterConfigsRequest,
        response=AlterConfigsResponse,
        handle=alter_configs,
    ),
    Api(
        "IncrementalAlterConfigs",
        first=0,
        request=IncrementalAlterConfigsRequest,
        response=IncrementalAlterConfigsResponse,
        handle=incremental_alter_configs,
    ),
)
