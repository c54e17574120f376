"""The logs that a job over a herd is about, and where Spark's tasks find them.

By default that is every log of the catalogue. The driver lists the names, a thousand a request; the
tasks read what lies behind them, each its share.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.errors import NotFound
from stratalog.herd import CATALOGUE_TIMEOUT_S, Catalogue, log_store, servers
from stratalog.objectlog import located
from stratalog.objectlog.stored import MANIFEST_PATH, Manifest, is_being_destroyed
from stratalog.ordered import gather_bounded
from stratalog.pipeline.spark import check_reachable
from stratalog.runtime import DEFAULT_RUNTIME
from stratalog.store import PROBE_PREFIX, PatientStore, Store

NAMES_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class LogRef:
    """A log by its name, by its id, or by both."""

    name: str | None = None
    log_id: str | None = None

    @property
    def id(self) -> str:
        """The id of a log that was looked up."""
        assert self.log_id is not None
        return self.log_id

    @property
    def label(self) -> str:
        """What a person calls it."""
        return self.name or self.log_id or "?"


def place_of(root_url: str) -> str:
    """The root of a herd as every worker can open it. ``Invalid`` if none but this one can."""
    return check_reachable(str(located(root_url)))


async def find_logs(
    root: Store, *, names: Sequence[str] | None = None, log_ids: Sequence[str] | None = None
) -> list[LogRef]:
    """These logs, or all. ``NotFound`` for a name that no log has, or where there is no herd."""
    patient = PatientStore(root, DEFAULT_RUNTIME, CATALOGUE_TIMEOUT_S)
    catalogue = Catalogue(patient, DEFAULT_RUNTIME)
    found = [LogRef(None, log_id) for log_id in dict.fromkeys(log_ids or ())]
    entries = await gather_bounded(dict.fromkeys(names or ()), catalogue.find, NAMES_AT_ONCE)
    found += [LogRef(entry.name, entry.id) for entry in entries]
    if names is None and log_ids is None:
        found = [LogRef(name) async for name in catalogue.names()]
        if not found:
            await check_herd(patient)
    return found


async def check_herd(root: Store) -> None:
    """A place without a log and without a server is more likely misspelt than a herd."""
    async for _ in Catalogue(root, DEFAULT_RUNTIME).names():
        return
    async for _ in servers(root):
        return
    raise NotFound(
        f"there is no herd at {root.url}",
        hint="Check the spelling, or create its first log: `stratalog herd create`.",
    )


def check_alive(manifest: Manifest, log: str) -> None:
    """``NotFound`` for a log that is being destroyed."""
    if is_being_destroyed(manifest):
        raise NotFound(f"the log {log} is being destroyed", path=MANIFEST_PATH)


async def resolve(root: Store, ref: LogRef) -> tuple[LogRef, Store]:
    """A log with its id, and its place. ``NotFound`` if it was dropped meanwhile."""
    if ref.log_id is None:
        assert ref.name is not None
        ref = LogRef(ref.name, (await Catalogue(root, DEFAULT_RUNTIME).find(ref.name)).id)
    return ref, log_store(root, ref.id)


async def has_lost_manifest(root: Store, ref: LogRef) -> bool:
    """Whether a log that has no manifest had one: its name is taken, and something of it is there.

    A drop frees the name before it deletes anything, and deletes the manifest last. A creation that
    was cut short leaves a name and nothing else.
    """
    if ref.name is not None:
        try:
            entry = await Catalogue(root, DEFAULT_RUNTIME).find(ref.name)
        except NotFound:
            return False
        if entry.id != ref.id:
            return False
    rows = log_store(root, ref.id).list()
    return any([not row.path.startswith(PROBE_PREFIX) async for row in rows])
