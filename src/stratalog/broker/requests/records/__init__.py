"""Records in and out, and their producers."""

from stratalog.broker.requests.records.describe_producers import DESCRIBE_PRODUCERS
from stratalog.broker.requests.records.fetch import Fetch
from stratalog.broker.requests.records.init_producer_id import INIT_PRODUCER_ID
from stratalog.broker.requests.records.produce import Produce

APIS = (DESCRIBE_PRODUCERS, INIT_PRODUCER_ID)
