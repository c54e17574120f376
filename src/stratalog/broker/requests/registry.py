"""How a handler is registered, and how requests of older versions reach it.

A handler is written once, against the newest version of a range of versions. A request of an older
version is translated up to it, with the schema's defaults for what the old version lacks; the
answer is translated down, leaving out what the old version has no place for. Where an API changed
its shape, it has several ranges, each with a handler.

Importing a version of a schema takes 3 to 5 ms, and there are hundreds. The newest of each range is
imported with its handler, an older one when a client first speaks it.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kio.schema.errors import ErrorCode
from kio.static.protocol import RequestPayload, ResponsePayload

from stratalog.invariants import invariant

if TYPE_CHECKING:
    from stratalog.broker.context import BrokerContext, Client

Q = TypeVar("Q", bound=RequestPayload)
A = TypeVar("A", bound=ResponsePayload)


@dataclass(frozen=True, slots=True)
class Api(Generic[Q, A]):
    """A range of versions of an API, and its handler."""

    name: str
    """As Kafka writes it: ``ListOffsets``."""

    first: int
    """The oldest version that it serves."""

    request: type[Q]
    """The request's schema of the newest version that it serves."""

    response: type[A]
    """The response's schema of the same version."""

    handle: "Callable[[BrokerContext, Client, Q], Awaitable[A]]"
    """Answers a request. Requests of one connection are handled side by side and answered in order.
    What belongs to a part of a request (a topic, a partition) is answered with its code by the
    handler; a ``StratalogError`` that it raises concerns the whole request."""

    refuse: Callable[[Q, ErrorCode], A] | None = None
    """The answer when the whole request fails. Without it the connection is closed."""

    advertised_first: int | None = None
    """The oldest version that clients are told of, if it differs from ``first``."""

    def __post_init__(self) -> None:
        invariant(
            self.request.__version__ == self.response.__version__
            and self.request.__api_key__ == self.response.__api_key__,
            "the schemas of a request and of its response are of one version",
        )

    @property
    def key(self) -> int:
        return int(self.request.__api_key__)

    @property
    def last(self) -> int:
        """The newest version that it serves."""
        return int(self.request.__version__)


AnyApi = Api[Any, Any]


@dataclass(frozen=True, slots=True)
class Advertised:
    """What ApiVersions says of one API."""

    key: int
    first: int
    last: int


class Registry:
    """The APIs that a broker serves, by key and version."""

    def __init__(self, apis: Sequence[AnyApi]) -> None:
        self._apis: dict[tuple[int, int], AnyApi] = {}
        self._ranges: dict[int, tuple[int, int]] = {}
        for api in apis:
            for version in range(api.first, api.last + 1):
                invariant((api.key, version) not in self._apis, "one handler for each version")
                self._apis[api.key, version] = api
            first = api.first if api.advertised_first is None else api.advertised_first
            known = self._ranges.get(api.key, (first, api.last))
            self._ranges[api.key] = (min(first, known[0]), max(api.last, known[1]))

    def find(self, key: int, version: int) -> AnyApi | None:
        """The handler of a version, if it is served."""
        return self._apis.get((key, version))

    def advertised(self) -> list[Advertised]:
        """All ranges, by key."""
        return [Advertised(key, *self._ranges[key]) for key in sorted(self._ranges)]
