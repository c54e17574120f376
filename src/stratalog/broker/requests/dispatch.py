"""Who handles a request: by its API and version.

Produce and Fetch are handled where they arrive. Every other request has a task, so that one that
waits keeps no other from being handled; the answers go out in the order of the requests.
"""

import logging

from kio.schema.errors import ErrorCode
from kio.static.protocol import RequestPayload, ResponsePayload

from stratalog.broker.context import BrokerContext, Client
from stratalog.broker.requests.api_versions import ITSELF, KEY, VersionsAnswer
from stratalog.broker.requests.records import Fetch, Produce
from stratalog.broker.requests.registry import Advertised, AnyApi, Registry
from stratalog.broker.wire import (
    FETCH_FIRST,
    FETCH_KEY,
    FETCH_LAST,
    PRODUCE_ADVERTISED_FIRST,
    PRODUCE_KEY,
    PRODUCE_LAST,
    Connection,
    Malformed,
    RequestHeader,
    Slot,
    answer_frame,
    code_of,
    is_flexible,
    read_header,
    read_request,
)
from stratalog.errors import StratalogError

log = logging.getLogger("stratalog.broker")


class Dispatcher:
    """Hands each request to its handler."""

    def __init__(self, context: BrokerContext, registry: Registry) -> None:
        self._context = context
        self._registry = registry
        self._produce = Produce(context)
        self._fetch = Fetch(context)
        self._versions = VersionsAnswer(all_advertised(registry))

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        header = read_header(frame)
        key = header.key
        if key == PRODUCE_KEY:
            self._produce(connection, frame, header)
        elif key == FETCH_KEY:
            self._fetch(connection, frame, header)
        elif key == KEY:
            answer = self._versions.frame(header.correlation_id, header.version)
            connection.slot(frame).answer((answer,), self._context.meters.request("ApiVersions"))
        else:
            self._begin(connection, frame, header)

    def _begin(self, connection: Connection, frame: memoryview, header: RequestHeader) -> None:
        key, version = header.key, header.version
        api = self._registry.find(key, version)
        if api is None:
            raise Malformed(f"API {key} v{version} is not served")
        at = header.payload_at(frame, flexible=is_flexible(key, version))
        request = read_request(key, version, frame, at, api.request)
        client = Client(str(header.client_id, "utf-8", "replace"), connection.host, version)
        slot = connection.slot(frame)
        connection.spawn(self._handle(api, client, slot, header.correlation_id, request))

    async def _handle(
        self, api: AnyApi, client: Client, slot: Slot, correlation_id: int, request: RequestPayload
    ) -> None:
        answer, failed = await self._answered(api, client, request)
        if answer is None:
            slot.abandon(f"{api.name} v{client.version} failed, and has no answer that says so")
            return
        try:
            frame = answer_frame(correlation_id, client.version, answer)
        except Exception:
            log.exception("the answer to %s v%d cannot be written", api.name, client.version)
            slot.abandon(f"the answer to {api.name} v{client.version} cannot be written")
            return
        slot.answer((frame,), self._context.meters.request(api.name), failed=failed)

    async def _answered(
        self, api: AnyApi, client: Client, request: RequestPayload
    ) -> tuple[ResponsePayload | None, bool]:
        """The answer, if there is one, and whether it says that the request failed."""
        try:
            return await api.handle(self._context, client, request), False
        except StratalogError as error:
            code = code_of(error)
        except Exception:
            log.exception("%s v%d failed", api.name, client.version)
            code = ErrorCode.unknown_server_error
        return None if api.refuse is None else api.refuse(request, code), True


def all_advertised(registry: Registry) -> list[Advertised]:
    """What clients are told of, by key."""
    by_hand = [
        Advertised(PRODUCE_KEY, PRODUCE_ADVERTISED_FIRST, PRODUCE_LAST),
        Advertised(FETCH_KEY, FETCH_FIRST, FETCH_LAST),
        ITSELF,
    ]
    return sorted([*by_hand, *registry.advertised()], key=lambda each: each.key)
