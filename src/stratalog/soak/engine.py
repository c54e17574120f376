"""The soak itself: writers, a follower and chores on one log at once, and the proof.

    soaking     writers append, the follower reads and matches, chores run
    ending      the writers stop; every call is answered, or in doubt
    draining    the follower reads the rest, up to the present tail
    checking    every acknowledged record was read; the stored log is verified

A soak creates a log of its own, and collects it behind the follower. In an existing log (``force``)
it collects nothing, since the records there belong to somebody else.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from stratalog.errors import Corrupt, NotFound, StratalogError, Trimmed, Unavailable
from stratalog.objectlog import LogReader, ReaderOptions, create_log
from stratalog.objectlog.check import verify
from stratalog.objectlog.stored import RUN_DIGITS, body_views, load_manifest
from stratalog.runtime import DEFAULT_RUNTIME, Runtime
from stratalog.soak.chores import Chores
from stratalog.soak.history import History, described
from stratalog.soak.ledger import Ledger
from stratalog.soak.options import SoakOptions
from stratalog.soak.prefix_sums import PrefixSums, sum_of_batch
from stratalog.soak.report import Figures, SoakReport
from stratalog.soak.writers import OpenWriter, Writers, open_locally, pause
from stratalog.store import PatientStore, Store, StoreLike, open_store

DEFAULT_OPTIONS = SoakOptions()
PROGRESS_S = 0.5
IDLE_S = 0.5
FOLLOWING = ReaderOptions(poll_s_min=0.02, poll_s_max=0.2)
MANIFEST_TIMEOUT_S = 60.0

OnProgress = Callable[[Figures], None]


async def soak(
    url: StoreLike,
    *,
    options: SoakOptions = DEFAULT_OPTIONS,
    open_writer: OpenWriter | None = None,
    history: History | None = None,
    on_progress: OnProgress | None = None,
    runtime: Runtime = DEFAULT_RUNTIME,
) -> SoakReport:
    """Write to a new log for a while, and prove that written and read records map one to one.

    Raises ``Exists`` if there is a log already, unless ``options.force``. ``open_writer`` opens
    the writers; by default they live in this process. A violation ends the soak at once; see
    ``SoakReport.violations``.
    """
    store = open_store(url)
    alone = await _prepare(store, options, runtime)
    run = _Soak(store, options, alone, open_writer, history or History(), on_progress, runtime)
    return await run.run()


async def _prepare(store: Store, options: SoakOptions, runtime: Runtime) -> bool:
    """Create the log. False if it existed, which ``options.force`` allows."""
    if options.force:
        try:
            await load_manifest(PatientStore(store, runtime, MANIFEST_TIMEOUT_S))
            return False
        except NotFound:
            pass
    await create_log(store, writer="soak", runtime=runtime)
    return True


@dataclass
class _Soak:
    store: Store
    options: SoakOptions
    alone: bool
    open_writer: OpenWriter | None
    history: History
    on_progress: OnProgress | None
    runtime: Runtime

    def __post_init__(self) -> None:
        self._run = self.runtime.new_id(RUN_DIGITS)
        self._abandoned: set[asyncio.Task[None]] = set()
        local = open_locally(self.store, self.runtime, self._abandoned)
        self._open = self.open_writer or local
        self._clock = asyncio.get_running_loop().time
        self._started_s = self._clock()
        self._stopping = asyncio.Event()
        self._end: int | None = None
        self._lately = (self._started_s, 0)
        self._troubles = 0

    async def run(self) -> SoakReport:
        async with LogReader.open(self.store, options=FOLLOWING, runtime=self.runtime) as reader:
            first = reader.tail
            self._ledger = Ledger(self._run, first, alone=self.alone)
            self._sums = PrefixSums(first)
            self._writers = Writers(
                self._run, self.options, self._ledger, self.history, self.runtime, self._open
            )
            self._chores = Chores(
                self.store,
                self._run,
                self.options,
                self._ledger,
                self._sums,
                self.history,
                self.runtime,
            )
            await self._chores.hold(first)
            try:
                await self._soak(reader)
                if self._has_read_all:
                    self._ledger.finish()
                await self._check_stored()
            except ExceptionGroup as errors:
                raise _first(errors) from None
            finally:
                await self._chores.release(tidy=self.alone)
                self.history.close()
        return self._report()

    async def _soak(self, reader: LogReader) -> None:
        self._started_s = self._clock()
        async with asyncio.TaskGroup() as group:
            follower = group.create_task(self._follow(reader))
            reporting = group.create_task(self._report_progress())
            group.create_task(self._writers.supply.fill(self._stopping))
            for chore in self._chores.all(self._stopping, collecting=self.alone):
                group.create_task(chore)
            writers = [
                group.create_task(self._writers.keep_one(f"soak writer {number}", self._stopping))
                for number in range(1, self.options.writers + 1)
            ]
            await pause(self._stopping, self.options.duration_s)
            self._stopping.set()
            await asyncio.gather(*writers)
            if self._abandoned:  # They finish, which takes no longer than their time-out.
                await asyncio.wait(self._abandoned)
            await self._drain(follower)
            reporting.cancel()

    async def _drain(self, follower: asyncio.Task[None]) -> None:
        """Let the follower read up to the present tail."""
        async with LogReader.open(self.store, runtime=self.runtime) as reader:
            self._end = reader.tail
        done, _ = await asyncio.wait([follower], timeout=self.options.drain_timeout_s)
        if not done:
            raise Unavailable(
                f"the reader is at {self._ledger.next_offset}, the log ends at {self._end}",
                hint="Nothing is proven. Lower the rate, or raise drain_timeout_s.",
            )

    async def _follow(self, reader: LogReader) -> None:
        """Read everything once, in order, and match it with the appends."""
        while not self._has_read_all:
            try:
                await self._read_on(reader)
            except Unavailable:
                self._troubles += 1
            except Trimmed as error:
                self._ledger.violate("held", f"collected before it was read: {error}")
                self._ledger.skip_to(max(error.first_offset, self._ledger.next_offset))
            except Corrupt as error:
                self._ledger.violate("stored", f"{error}")
                return

    async def _read_on(self, reader: LogReader) -> None:
        following = reader.follow(self._ledger.next_offset, idle_timeout_s=IDLE_S)
        noted = self.history.call("follow", "read")
        try:
            async with aclosing(following):
                async for batch in following:
                    noted.records = described(self._ledger.see(batch))
                    bodies = body_views(batch.column(2))
                    self.history.read(noted, batch.column(0)[0].as_py(), bodies)
                    batch_sum = await self.runtime.compute(partial(sum_of_batch, batch))
                    self._sums.add(self._ledger.next_offset, batch_sum)
                    noted = self.history.call("follow", "read")
                    if self._has_read_all:
                        return
        finally:
            self.history.drop(noted)

    @property
    def _has_read_all(self) -> bool:
        return self._end is not None and self._ledger.next_offset >= self._end

    async def _check_stored(self) -> None:
        """Verify the stored log if it is the soak's own; another log may be of any length."""
        if not self.alone:
            return
        report = await verify(self.store, runtime=self.runtime)
        for check in report.checks:
            if not check.held:
                self._ledger.violate("stored", f"{check.name} does not hold: {check.evidence}")

    # Reporting

    async def _report_progress(self) -> None:
        """Report the figures regularly. The first violation ends the soak."""
        while True:
            await asyncio.sleep(PROGRESS_S)
            if self._ledger.violated:
                self._stopping.set()
            now_s, acknowledged = self._clock(), self._ledger.acknowledged
            since_s, before = self._lately
            rate = (acknowledged - before) / (now_s - since_s)
            self._lately = (now_s, acknowledged)
            if self.on_progress is not None:
                self.on_progress(self._figures(rate))

    def _figures(self, rate: float) -> Figures:
        ledger, writers, chores = self._ledger, self._writers, self._chores
        return Figures(
            elapsed_s=self._clock() - self._started_s,
            rate=rate,
            called=ledger.called,
            acknowledged=ledger.acknowledged,
            failed=ledger.failed,
            unknown=ledger.unknown,
            landed=ledger.landed,
            read=ledger.read,
            others=ledger.others,
            lag=ledger.lag,
            remembered=ledger.remembered,
            appends=writers.appends.timing(),
            opened=writers.opened,
            killed=writers.killed,
            collections=chores.collections,
            collected=chores.collected,
            sweeps=chores.sweeps,
            swept=chores.swept,
            pins=chores.pins,
            forks=chores.forks,
            side_reads=chores.side_reads,
            refused=chores.refused,
            troubles=self._troubles + writers.troubles + chores.troubles,
            violations=ledger.violated,
        )

    def _report(self) -> SoakReport:
        elapsed_s = self._clock() - self._started_s
        return SoakReport(
            url=self.store.url,
            run=self._run,
            figures=self._figures(self._ledger.acknowledged / elapsed_s if elapsed_s else 0.0),
            violations=tuple(self._ledger.violations),
        )


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The most telling error: one of this library's, if there is one."""
    error: BaseException = errors.subgroup(StratalogError) or errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[-1]
    return error
