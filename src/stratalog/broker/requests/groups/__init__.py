"""The handlers of groups: membership, committed offsets, and what people ask."""

from stratalog.broker.requests.groups import admin, membership, offsets

APIS = (*membership.APIS, *offsets.APIS, *admin.APIS)

__all__ = ["APIS"]
