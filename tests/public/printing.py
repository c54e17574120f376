"""The commands that are called to see what they print, against small logs, herds and disks."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import stratalog as sl
from cli.calls import call, new_log, new_url, run
from cli.test_fork import change_note
from clients.confluent import Confluent
from clients.published_client import Sent
from clients.running_broker import RunningBroker
from objectlog.leftovers import litter
from objectlog.planted_damage import (
    Planter,
    Victim,
    a_cursor_below_the_start,
    a_flipped_bit_of_a_body,
    a_missing_fragment,
    a_missing_snapshot,
)
from public.printed import Printed
from public.stored import Inventory
from segments.damaged_disks import Victim as DiskVictim
from segments.damaged_disks import an_entry, last_batch, wal_in_the_middle
from soak.described import record
from stratalog.objectlog.bulk.commit import link_uploaded
from stratalog.objectlog.bulk.upload import Batch, BulkUpload
from stratalog.objectlog.holds.upload_guard import UploadGuard

AT_ONCE = ("--interval", "0")
CORRUPT = 13
INVALID = 2
EXISTS = 4
NOT_HAPPENED = 5
INCOMPLETE = 16
KEY = "substring_index(cast(body as string), ' ', 1)"
STRICTLY = ("--live-share-min", "1", *AT_ONCE)
PRICES = """
currency = "EUR"
storage_per_gb_month = 1.0
class_a_per_1000 = 2.0
class_b_per_1000 = 0.5
egress_per_gb = 4.0
gb_bytes = 1000
"""

NOT_CALLED: dict[str, str] = {}
"""Commands with ``--json`` that are not called here, and why not."""


def without_spark(folder: Path) -> Inventory:
    """What is printed by the commands that need no Spark."""
    printed = Printed()
    _one_log(printed, folder)
    _tree(printed)
    _ends(printed)
    _holds(printed)
    _damage(printed)
    _leftovers(printed)
    _measures(printed, folder)
    _erasure(printed, folder)
    _compaction(printed, folder)
    _herd(printed, folder)
    _disk(printed, folder)
    _broker(printed, folder / "broker")
    return printed.inventory()


def with_spark(folder: Path) -> Inventory:
    """What is printed by those that do. A session that is there is used."""
    printed = Printed()
    _by_key(printed, folder)
    _by_condition(printed, folder)
    _pipeline(printed, folder)
    return printed.inventory()


def _one_log(printed: Printed, folder: Path) -> None:
    url = new_url()
    printed("init", url)
    printed("init", url, code=4)
    printed("append", url, input=b"a\nb\n")
    printed("append", url, "--atomic", input=b"")
    printed("append", url, "--expected-offset", "99", input=b"c\n", code=NOT_HAPPENED)
    call("append", url, "--length-prefixed", input=b"\0\0\0\x02\xff\0")
    printed("read", url)
    printed("follow", url, "--from", "1", "--idle-timeout", "0")
    printed("info", url)
    printed("verify", url)
    printed("destroy", url, "--yes")


def _tree(printed: Printed) -> None:
    url = new_url()
    options = sl.WriterOptions(fragment_bytes=1, rollup_entries=4, snapshot_entries_max=4)

    async def fill() -> None:
        async with sl.LogWriter.open(url, create=True, options=options) as log:
            for number in range(60):
                await log.append(b"%d" % number)

    run(fill())
    printed("info", url, "--tree", "--all")


def _ends(printed: Printed) -> None:
    url, successor = new_log(b"a", b"b"), new_url()
    printed("fork", url, f"{url}/fork")
    printed("info", f"{url}/fork")
    printed("fork", url, f"{url}/other", "--at", "2")
    printed("fork", url, f"{url}/fork")
    change_note(f"{url}/other", "fork", state="forking")
    printed("fork", url, f"{url}/other", "--abort")
    printed("copy", url, copied := new_url())
    printed("info", copied)
    printed("copy", url, copied)
    printed("backup", url, kept := new_url())
    printed("backups", kept)
    printed("backups", kept, "--check")
    printed("restore", kept, new_url())
    printed("seal", url)
    printed("migrate", url, successor, "--note", "full")
    printed("seal", url)
    printed("info", url)
    printed("info", successor)


def _fragments(count: int) -> str:
    """A log with one record in each fragment."""
    url = new_url()

    async def fill() -> None:
        async with sl.LogWriter.open(url, create=True) as log:
            for number in range(count):
                await log.append(b"%d" % number)

    run(fill())
    return url


def _holds(printed: Printed) -> None:
    url = _fragments(5)
    printed("pin", "create", url, "mine", "--to", "3", "--note", "why")
    printed("pin", "create", url, "soon", "--expires", "1h")
    printed("pin", "list", url)
    printed("pin", "renew", url, "mine", "--expires", "1h")
    printed("pin", "renew", url, "mine")
    printed("cursor", "create", url, "a", "3")
    printed("cursor", "move", url, "a", "4", "--expected-offset", "3")
    printed("cursor", "move", url, "a", "4", "--expected-offset", "3", code=NOT_HAPPENED)
    printed("cursor", "create", url, "b", "5")
    printed("cursor", "list", url)
    _collect(printed, url)
    printed("pin", "release", url, "mine")
    printed("cursor", "delete", url, "b")
    rule = ("--key", "body", "--tombstone", "false", "--grace", "2h", "--no-check")
    printed("policy", "set", url, *rule)
    printed("policy", "get", url)
    options = ("--retain-age", "12h", "--retain-bytes", "1GiB")
    thresholds = ("--live-share-min", "0.25", "--new-records-min", "10")
    printed("policy", "set", url, "--live", "SELECT 1", "--no-check", *options, *thresholds)
    printed("policy", "get", url)
    printed("policy", "remove", url)


def _collect(printed: Printed, url: str) -> None:
    async def leave_a_plan() -> None:
        await sl.Collector(url, writer="another").compute()

    printed("collect", url, "--dry-run")
    run(leave_a_plan())
    printed("collect", url, "--dry-run")
    printed("collect", url, "--cancel")
    printed("collect", url, "--cancel")
    run(leave_a_plan())
    printed("collect", url, *AT_ONCE)
    printed("collect", url, *AT_ONCE)


def _damage(printed: Printed) -> None:
    async def harm(*planters: Planter) -> str:
        url = new_url()
        victim = await Victim.make(sl.open_store(url))
        for planter in planters:
            await planter(victim)
        return url

    url = run(harm(a_missing_fragment, a_flipped_bit_of_a_body))
    printed("scrub", url, code=CORRUPT)
    printed("verify", url, code=CORRUPT)
    printed("verify", new_log(record(1, 0), record(1, 2)), code=CORRUPT)
    url = run(harm(a_cursor_below_the_start, a_missing_snapshot))
    printed("scrub", url, "--repair")
    printed("scrub", url)
    url = run(harm(a_missing_snapshot, a_missing_fragment))
    printed("scrub", url, "--repair", code=CORRUPT)


def _leftovers(printed: Printed) -> None:
    url = new_log(b"a")

    async def leave() -> None:
        stage = await UploadGuard.register(url, owner="somebody", note="why")
        await litter(url, stage.names)
        await sl.open_store(url).put_if_absent("log/notes.txt", b"mine")
        await sl.PinStore(url).create("held")

    run(leave())
    printed("sweep", url, "--dry-run")
    printed("sweep", url)
    _sinks(printed)


def _sinks(printed: Printed) -> None:
    url = new_url()

    async def sink() -> None:
        await sl.create_log(url)
        task = await BulkUpload.open(url, query="q", batch=7)
        staged = await task.upload(pa.array([b"x"], pa.binary()))
        await link_uploaded(url, [staged], batch=Batch("q", 7))

    run(sink())
    printed("sinks", "list", url)
    printed("sinks", "forget", url, "q")


def _measures(printed: Printed, folder: Path) -> None:
    (folder / "prices.toml").write_text(PRICES)
    url = new_log(b"a")
    printed("cost", url)
    rates = ("--appends-per-second", "10", "--append-bytes", "100", "--followers", "1")
    printed("cost", url, "--prices", str(folder / "prices.toml"), *rates)
    printed("doctor", new_url(), "--rounds", "2")
    printed("soak", new_url(), "--duration", "1s", "--rate", "200")


def _erasure(printed: Printed, folder: Path) -> None:
    url = str(folder / "erased")
    (folder / "chosen").write_bytes(b"[[2, 4]]")
    call("init", url)
    for number in range(5):
        call("append", url, input=b"%d\n" % number)
    chosen = ("--offsets-file", str(folder / "chosen"))
    call("pin", "create", url, "held")
    printed("erase", url, *chosen, "--dry-run")
    despite = ("--despite-holders", "--yes", "--note", "x", *AT_ONCE)
    printed("erase", url, *chosen, *despite, code=INCOMPLETE)
    printed("certificate", "list", url)
    printed("certificate", "verify", url)
    call("pin", "release", url, "held")
    printed("erase", url, "--finish", *AT_ONCE)
    printed("erase", url, *chosen, "--yes", *AT_ONCE)
    printed("certificate", "list", url)
    printed("certificate", "verify", url)


def _compaction(printed: Printed, folder: Path) -> None:
    url = _fragments(5)
    (folder / "live").write_bytes(b"[[2, 3]]")
    printed("compact", url, "--live-file", str(folder / "live"), "--up-to", "4", *STRICTLY)
    printed("info", url)


def _new_herd(folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    root = str(folder / "herd")

    async def write() -> None:
        async with sl.Herd.open(root, server="api") as herd:
            for name in ("a", "b"):
                await (await herd.create(name)).append_many([b"k %d" % n for n in range(20)])

    run(write())
    return root


def _herd(printed: Printed, folder: Path) -> None:
    root = _new_herd(folder)
    printed("herd", "create", root, "c")
    printed("herd", "where", root, "c")
    printed("herd", "list", root)
    printed("herd", "dirty", root, "--records", "5")
    printed("herd", "dirty", root, "--age", "1h")
    printed("pipeline", "roll-up", root, "--records", "5")
    printed("pipeline", "roll-up", root, "--age", "1h")
    printed("policy", "set", root, "--log", "a", "--retain-age", "1w")
    printed("policy", "get", root, "--log", "*")
    printed("policy", "remove", root, "--log", "*")


def _disk(printed: Printed, folder: Path) -> None:
    victim = DiskVictim(folder / "disk")
    victim.write("seg/left.seg", b"by a crash")
    root = str(victim.root)
    printed("disk", "info", root)
    printed("disk", "check", root)
    an_entry(victim)
    printed("disk", "check", root, code=CORRUPT)
    last_batch(victim)
    printed("disk", "info", root)
    wal_in_the_middle(victim)
    printed("disk", "repair", root, code=CORRUPT)
    printed("disk", "repair", root, "--accept-loss")


def _broker(printed: Printed, folder: Path) -> None:
    folder.mkdir()
    broker = RunningBroker(folder)
    try:
        _topics_and_groups(printed, broker.address)
    finally:
        broker.ends()


def _topics_and_groups(printed: Printed, address: str) -> None:
    at = ("--bootstrap", address)
    printed("topics", "create", "orders", *at)
    printed("topics", "create", "orders", *at, code=EXISTS)
    change = ("--partitions", "2", "--config", "retention.ms=-1", "--unset", "flush.ms")
    printed("topics", "alter", "orders", *change, *at)
    printed("topics", "list", *at)
    client = Confluent(address)
    client.produce("orders", [Sent(b"x")] * 3)
    printed("topics", "describe", "orders", *at)
    client.commit("bills", "orders", {0: 2})
    printed("groups", "list", *at)
    with client.member("bills", "orders"):
        printed("groups", "describe", "bills", *at)
    printed("groups", "describe", "bills", *at)
    back = ("--topic", "orders", "--to-earliest")
    printed("groups", "reset-offsets", "bills", *back, *at)
    printed("groups", "delete", "bills", "--yes", *at)
    printed("topics", "delete", "orders", "--yes", *at)


# With Spark


def _by_key(printed: Printed, folder: Path) -> None:
    url = str(folder / "by-key")
    call("init", url)
    for number in range(4):
        call("append", url, input=b"a %d\nb %d\n" % (number, number))
    printed("compact", url, "--key", KEY, *STRICTLY)


def _by_condition(printed: Printed, folder: Path) -> None:
    url = str(folder / "by-condition")
    call("init", url)
    for number in range(4):
        call("append", url, input=b"a %d\nb %d\n" % (number, number))
    where = ("--where", "string(body) LIKE 'a %'")
    printed("erase", url, *where, "--yes", *AT_ONCE)
    printed("certificate", "verify", url, *where)


def _pipeline(printed: Printed, folder: Path) -> None:
    root, broken, wrong = (_new_herd(folder / name) for name in ("whole", "broken", "wrong"))
    next(Path(broken).glob("logs/*/log/**/*.parquet")).unlink()
    run_once = ("pipeline", "run", *AT_ONCE, "--report", str(folder / "report.html"), "--key")
    printed("pipeline", "materialize", root, "--key", KEY)
    printed("pipeline", "collect", root, *AT_ONCE)
    call("policy", "set", root, "--log", "*", "--retain-age", "1w", "--key", KEY)
    printed("pipeline", "scrub", root)
    printed("pipeline", "verify", root)
    printed(*run_once, KEY, root)
    printed(*run_once, "no_such_column", wrong, code=INVALID)
    printed("policy", "get", root, "--log", "*")
    printed("pipeline", "scrub", broken, code=CORRUPT)
    printed("pipeline", "materialize", broken, "--key", KEY, code=CORRUPT)
    printed("pipeline", "verify", broken, "--records", code=CORRUPT)
    printed(*run_once, KEY, broken, code=CORRUPT)
