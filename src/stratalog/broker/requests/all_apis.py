"""All that is served: each module of handlers names its ``APIS``, and this puts them together."""

from stratalog.broker.requests import (
    cluster,
    config_changes,
    configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    groups,
    metadata,
    offsets,
    records,
)
from stratalog.broker.requests.registry import AnyApi, Registry

MODULES: tuple[tuple[AnyApi, ...], ...] = (
    cluster.APIS,
    config_changes.APIS,
    configs.APIS,
    create_partitions.APIS,
    create_topics.APIS,
    delete_records.APIS,
    delete_topics.APIS,
    groups.APIS,
    metadata.APIS,
    offsets.APIS,
    records.APIS,
)


def served() -> Registry:
    """The APIs that a broker serves through kio. Produce and Fetch have layouts of their own."""
    return Registry([api for apis in MODULES for api in apis])
