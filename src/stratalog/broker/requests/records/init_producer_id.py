"""InitProducerId: an id for an idempotent producer. There are no transactions."""

from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16

from stratalog.broker.context import BrokerContext, Client
from stratalog.broker.requests.parts import NOT_THROTTLED
from stratalog.broker.requests.registry import Api


async def init_producer_id(
    context: BrokerContext,
    client: Client,  # noqa: ARG001
    request: InitProducerIdRequest,
) -> InitProducerIdResponse:
    """A new id with epoch 0. A transactional id is refused in a way that clients do not retry."""
    if request.transactional_id is not None:
        return _refused(request, ErrorCode.transactional_id_authorization_failed)
    return InitProducerIdResponse(
        throttle_time=NOT_THROTTLED,
        error_code=ErrorCode.none,
        producer_id=ProducerId(await context.producer_ids.take()),
        producer_epoch=i16(0),
    )


def _refused(request: InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse:  # noqa: ARG001
    return InitProducerIdResponse(
        throttle_time=NOT_THROTTLED,
        error_code=code,
        producer_id=ProducerId(-1),
        producer_epoch=i16(-1),
    )


INIT_PRODUCER_ID = Api(
    "InitProducerId",
    first=0,
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
    handle=init_producer_id,
    refuse=_refused,
)
