"""All that is served: each module of handlers names its ``APIS``, and this puts them together."""

from stratalog.broker.requests.registry import AnyApi, Registry

MODULES: tuple[tuple[AnyApi, ...], ...] = ()


def served() -> Registry:
    """The APIs that a broker serves through kio. Produce and Fetch have layouts of their own."""
    return Registry([api for apis in MODULES for api in apis])
