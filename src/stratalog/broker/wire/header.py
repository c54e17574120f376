"""The header of a request.

API key  i16 | version  i16 | correlation id  i32 | client id  string? | tagged fields (flexible)
"""

import struct
from typing import Final

from stratalog.broker.wire.primitives import Malformed, Reader

HEADER: Final = struct.Struct(">hhih")
"""With the length of the client id."""


class RequestHeader:
    """Who asks for what. ``after_client`` is where the tagged fields or the payload begin."""

    __slots__ = ("after_client", "client_id", "correlation_id", "key", "version")

    def __init__(
        self, key: int, version: int, correlation_id: int, client_id: bytes, after_client: int
    ) -> None:
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.after_client = after_client

    def payload_at(self, frame: memoryview, *, flexible: bool) -> int:
        """Where the payload begins."""
        at = self.after_client
        if not flexible:
            return at
        if at < len(frame) and frame[at] == 0:
            return at + 1
        reader = Reader(frame, at, flexible=True)
        reader.skip_tags()
        return reader.at


def read_header(frame: memoryview) -> RequestHeader:
    """The header of a frame, without its tagged fields. ``Malformed`` if it is none."""
    size = len(frame)
    if size < HEADER.size:
        raise Malformed(f"a request has {size} bytes")
    key, version, correlation_id, length = HEADER.unpack_from(frame)
    end = HEADER.size + max(0, length)
    if length < -1 or end > size:
        raise Malformed("the client id ends beyond its request")
    return RequestHeader(key, version, correlation_id, bytes(frame[HEADER.size : end]), end)
