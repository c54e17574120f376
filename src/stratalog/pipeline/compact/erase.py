"""Erasing by a query: Spark finds the records, in the log and in what its pins hold.

A pin may hold fragments that the log has replaced or cut off since. What matches there is not in
the log any more, but still stored. So the query covers those fragments as well, and the erasure
names every holder of a record.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from stratalog.blocking import loop_thread
from stratalog.errors import Invalid
from stratalog.indexset import IndexSet
from stratalog.objectlog import CompactOptions
from stratalog.objectlog.compaction import DEFAULT_OPTIONS, OnProgress
from stratalog.objectlog.erasure import Certificate, Eraser
from stratalog.objectlog.holds import PinStore
from stratalog.objectlog.stored import ByteCache, Entry, Fragment, Snapshot, load_manifest
from stratalog.objectlog.tree import Tree, Window, key_of
from stratalog.pipeline.compact.by_query import live_set
from stratalog.pipeline.compact.key_rule import asked_of
from stratalog.pipeline.compact.rewrite_tasks import rewriting_in_tasks
from stratalog.pipeline.read import (
    PLANNING_CACHE_BYTES,
    SPLIT_BYTES,
    Part,
    Place,
    pinned_log,
    records_of,
    split_evenly,
)
from stratalog.pipeline.spark import RECORDS_DDL, absolute_url, frame_of, slots_of
from stratalog.store import open_store


def erase_where(
    spark: SparkSession,
    url: Place,
    where: str,
    *,
    despite_holders: bool = False,
    older_manifest: bool = False,
    note: str = "",
    on_progress: OnProgress | None = None,
    options: CompactOptions = DEFAULT_OPTIONS,
) -> Certificate | None:
    """Erase the records for which a SQL condition over offset, timestamp and body is true.

    None if there are none. ``Conflict`` if others hold some, unless ``despite_holders``: see
    ``erase``, also for ``older_manifest``. What is appended after the query has begun is not
    judged.
    """
    place = absolute_url(url)
    offsets = matching(spark, place, where)
    rewrite = rewriting_in_tasks(spark, place, options)
    eraser = Eraser(
        place, on_progress, options=options, rewrite=rewrite, older_manifest=older_manifest
    )
    return loop_thread().run(lambda: eraser.erase(offsets, despite_holders, where, note))


def matching(spark: SparkSession, url: Place, where: str) -> IndexSet:
    """The offsets of the records for which a condition is true, in the log or held by its pins."""
    place = absolute_url(url)
    if not where.strip():
        raise Invalid("a condition says which records go", hint="For example: user = 'u-17'.")

    def found(records: DataFrame) -> IndexSet:
        with asked_of("the condition does not say which records go"):
            return live_set(records.where(where).select("offset"))

    # Through the library: a record that is damaged might be one of those that go.
    with pinned_log(spark, place, via="arrow") as records:
        offsets = found(records)
    held = loop_thread().run(lambda: _held_elsewhere(place))
    if held:
        splits = split_evenly([Part(place, held)], SPLIT_BYTES, slots_of(spark))
        offsets |= found(frame_of(spark, splits, records_of, RECORDS_DDL))
    return offsets


async def _held_elsewhere(place: str) -> tuple[Fragment, ...]:
    """The fragments that pins hold and the log does not have any more."""
    store = open_store(place)
    tree = Tree(store, ByteCache[Snapshot](PLANNING_CACHE_BYTES))
    held: dict[str, Fragment] = {}
    for pin in await PinStore(store).list():
        async for fragment in tree.fragments(pin.entries, pin.window.overlaps, _pass_over):
            held[key_of(fragment)] = fragment
    if not held:
        return ()
    low = min(each.start.offset for each in held.values())
    high = max(each.limit.offset for each in held.values())
    manifest, _ = await load_manifest(store)
    # A node that is gone has just been replaced: then more is asked about than need be.
    async for fragment in tree.fragments(manifest.entries, Window(low, high).overlaps, _pass_over):
        held.pop(key_of(fragment), None)
    return tuple(held.values())


def _pass_over(_: Entry) -> None:
    """A node that is lost leads to nothing."""
