"""Deleting objects for good, however often the store does not answer."""

from collections.abc import Sequence

from stratalog.errors import Unavailable, Unknown
from stratalog.store import Patience, Store

DELETE_BATCH = 1000


async def delete_surely(store: Store, paths: Sequence[str], patience: Patience) -> None:
    """Delete objects whose names are never used again, repeating what was not answered.

    Many go in several requests, each with the whole of this patience.
    """
    for start in range(0, len(paths), DELETE_BATCH):
        patience.begin()
        while True:
            try:
                await store.delete_many(paths[start : start + DELETE_BATCH])
                break
            except (Unavailable, Unknown) as error:
                if not await patience.pause():
                    raise Unavailable(f"could not delete in time: {error}") from error
