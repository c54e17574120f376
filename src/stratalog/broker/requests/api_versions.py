"""ApiVersions: what a client may ask. It is the first request of most connections.

A client that asks in a version that is too new is answered in version 0, with
``unsupported_version`` and our versions of this API, and asks again.
"""

import struct
from collections.abc import Sequence
from typing import Final

from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersion, ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.static.primitive import i16

from stratalog.broker.requests.parts import NOT_THROTTLED
from stratalog.broker.requests.registry import Advertised
from stratalog.broker.wire import answer_frame

KEY: Final = int(ApiVersionsRequest.__api_key__)
FIRST: Final = 0
LAST: Final = int(ApiVersionsRequest.__version__)
NONE_OF_OURS: Final = -1
ITSELF: Final = Advertised(KEY, FIRST, LAST)

_HEAD: Final = struct.Struct(">ii")
_CORRELATION: Final = struct.Struct(">i")
_AT_CORRELATION: Final = 4


class VersionsAnswer:
    """What this broker says to ApiVersions. It is always the same."""

    def __init__(self, served: Sequence[Advertised]) -> None:
        self._answer = _response(ErrorCode.none, served)
        self._refusal = _response(ErrorCode.unsupported_version, [ITSELF])
        self._frames: dict[int, bytes] = {}

    def frame(self, correlation_id: int, version: int) -> bytes:
        if not FIRST <= version <= LAST:
            version = NONE_OF_OURS
        known = self._frames.get(version)
        if known is None:
            if version == NONE_OF_OURS:
                known = answer_frame(0, FIRST, self._refusal)
            else:
                known = answer_frame(0, version, self._answer)
            self._frames[version] = known
        after = _AT_CORRELATION + _CORRELATION.size
        return known[:_AT_CORRELATION] + _CORRELATION.pack(correlation_id) + known[after:]


def _response(error: ErrorCode, served: Sequence[Advertised]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=error,
        api_keys=tuple(
            ApiVersion(
                api_key=i16(each.key), min_version=i16(each.first), max_version=i16(each.last)
            )
            for each in served
        ),
        throttle_time=NOT_THROTTLED,
    )
