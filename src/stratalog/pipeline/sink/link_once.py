"""What the driver does for the sink: find the log, and link what the tasks have uploaded, once.

One manifest links all fragments of a batch, in the order of the partitions. It carries the query
and the number of the batch, so an attempt that comes again finds that it was linked.
"""

import logging
from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from stratalog.blocking import loop_thread
from stratalog.errors import StratalogError
from stratalog.herd import CATALOGUE_TIMEOUT_S, Catalogue, Herd, Mark, log_store
from stratalog.objectlog.append import create_log
from stratalog.objectlog.bulk import Batch, Linked, UploadedFragment, link_uploaded
from stratalog.objectlog.holds import UploadGuard, UploadGuardStore
from stratalog.objectlog.stored import load_manifest
from stratalog.pipeline.sink.options import SinkOptions, Target
from stratalog.pipeline.sink.upload_rows import Uploaded
from stratalog.pipeline.spark import below
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import PatientStore, open_store

log = logging.getLogger(__name__)

RELEASE_TIMEOUT_S = 10.0


async def locate(options: SinkOptions, *, is_numbered: bool) -> Target:
    """The log that was meant, created if that was asked for, and the upload guard of the job."""
    url, log_id = await _place_of(options)
    if is_numbered:
        return Target(url, options, query=options.query, log_id=log_id)
    stage = await UploadGuard.register(url, note="a write of Spark")
    return Target(url, options, job=stage.incarnation, log_id=log_id)


async def _place_of(options: SinkOptions) -> tuple[str, str | None]:
    """Where the log is, and its id if it belongs to a herd."""
    root = open_store(options.url)
    patient = PatientStore(root, DEFAULT_RUNTIME, CATALOGUE_TIMEOUT_S)
    if options.log is None:
        if options.create:
            await create_log(root, exist_ok=True)
        await load_manifest(patient)
        return options.url, None
    if options.create:
        async with Herd.open(root) as herd:
            log_id = await (await herd.create(options.log, exist_ok=True)).id()
    else:
        log_id = (await Catalogue(patient, DEFAULT_RUNTIME).find(options.log)).id
    return below(options.url, f"logs/{log_id}"), log_id


def link_once(
    target: Target, messages: Sequence[WriterCommitMessage | None], batch: Batch | None
) -> None:
    """Link what all tasks have uploaded, unless an earlier attempt has linked this batch."""
    fragments = [fragment for each in uploaded(messages) for fragment in each.fragments]
    linked = loop_thread().run(lambda: _linked(target, fragments, batch))
    log.info("%d fragments for %s: %s", len(fragments), target.url, linked)
    release_guards(target, sorted({each.incarnation for each in fragments}))


def release_guards(target: Target, incarnations: Sequence[str]) -> None:
    """Remove the upload guards of what is linked, and release that of the whole job.

    Whatever happens here, the rows are written: the sweep deletes what is left behind.
    """

    async def release() -> None:
        store = PatientStore(open_store(target.url), DEFAULT_RUNTIME, RELEASE_TIMEOUT_S)
        guards = UploadGuardStore(store)
        own = [] if target.job is None else [target.job]
        for job in own:
            await guards.release(job)
        await guards.remove([*incarnations, *own])

    try:
        loop_thread().run(release)
    except StratalogError as error:
        log.info("upload guards of %s were not removed: %s", target.url, error)


async def _linked(
    target: Target, fragments: Sequence[UploadedFragment], batch: Batch | None
) -> Linked:
    log_id = target.log_id
    if log_id is None:
        return await link_uploaded(target.url, fragments, batch=batch)
    async with Herd.open(target.options.url, server=target.options.server) as herd:

        async def mark(end: int, sweep_epoch: int) -> None:
            now_us = DEFAULT_RUNTIME.now_us()
            made = Mark(log_id=log_id, end=end, sweep_epoch=sweep_epoch, first_us=now_us)
            await herd.mark([made])

        store = log_store(herd.root, log_id)
        return await link_uploaded(store, fragments, batch=batch, before_link=mark)


def uploaded(messages: Sequence[WriterCommitMessage | None]) -> list[Uploaded]:
    """The messages of the tasks that had rows to write."""
    return [each for each in messages if isinstance(each, Uploaded)]
