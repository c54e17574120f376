"""`sinks`: the queries that a log remembers, from the shell."""

from __future__ import annotations

import pyarrow as pa

import stratalog as sl
from cli.calls import call, call_json, error_json, new_url, run
from stratalog.objectlog.bulk.commit import link_uploaded
from stratalog.objectlog.bulk.upload import Batch, BulkUpload


def log_with_batches(*batches: Batch) -> str:
    url = new_url()

    async def fill() -> None:
        await sl.create_log(url)
        for batch in batches:
            task = await BulkUpload.open(url, query=batch.query, batch=batch.number)
            staged = await task.upload(pa.array([b"x"], pa.binary()))
            await link_uploaded(url, [staged], batch=batch)

    run(fill())
    return url


def test_queries_are_listed_with_their_last_batch() -> None:
    url = log_with_batches(Batch("b", 0), Batch("a", 7), Batch("b", 3))
    assert call_json("sinks", "list", url) == [
        {"query": "a", "batch": 7},
        {"query": "b", "batch": 3},
    ]
    shown = call("sinks", "list", url).stdout.split()
    assert shown == ["query", "last", "batch", "a", "7", "b", "3"]


def test_a_log_without_queries() -> None:
    assert call("sinks", "list", log_with_batches()).stdout == (
        "no query writes to this log in batches\n"
    )


def test_a_query_is_forgotten() -> None:
    url = log_with_batches(Batch("a", 7))
    assert call("sinks", "forget", url, "a").stdout == "forgot a\n"
    assert call_json("sinks", "list", url) == []
    assert error_json("sinks", "forget", url, "a", code=3)["kind"] == "not-found"
