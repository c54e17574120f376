"""`./dev demo serve`: a broker that is killed while a million records are on their way to it.

Starts `stratalog serve` on a fresh directory. An idempotent producer, a published client that knows
nothing of us, sends a million records. In the middle the broker gets SIGKILL and is started again
on the same port; the producer is not told. Then a consumer group of three reads everything, and
the demo shows that each record is there exactly once, in the order of its partition. The directory
is removed at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from stratalog.broker.admin import connect, create_topic, describe_group, describe_topic
from stratalog.cli import output
from stratalog.errors import Corrupt, StratalogError, Unavailable

RECORDS = 1_000_000
BODY_BYTES = 100
PARTITIONS = 6
CONSUMERS = 3
TOPIC = "orders"
GROUP = "demo"
SHOWN_EVERY = 10_000
READY_S = 30.0
READ_S = 60.0
AT_A_TIME = 5_000


class RunningBroker:
    """``stratalog serve`` as a process of its own, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.address = "127.0.0.1:0"

    def start(self) -> float:
        """Start it and wait until it serves. Gives the seconds that this took."""
        log = self._folder / "broker.log"
        before = log.stat().st_size if log.exists() else 0
        began = time.monotonic()
        command = [sys.executable, "-m", "stratalog", "serve", "--data", str(self._folder / "data")]
        command += ["--listen", self.address, "--http", "none"]
        with log.open("ab") as said:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
        while True:
            lines = log.read_bytes()[before:].decode(errors="replace").splitlines(keepends=True)
            for line in lines:
                if line.startswith("ready kafka=") and line.endswith("\n"):
                    self.address = line.split()[1].removeprefix("kafka=")
                    return time.monotonic() - began
            if self._process.poll() is not None or time.monotonic() - began > READY_S:
                raise Unavailable(f"the broker did not start:\n{''.join(lines)}")
            time.sleep(0.01)

    def end(self, number: signal.Signals) -> int:
        """Send it a signal, and wait until it is gone. Gives its exit code."""
        if self._process is None:
            return 0
        self._process.send_signal(number)
        return self._process.wait(READY_S)


@dataclass
class Sent:
    """What the producer was told."""

    acknowledged: int = 0
    failed: list[str] = field(default_factory=list)

    def on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed.append(str(error))


@dataclass
class Read:
    """What the group has read: how often each record, and whether in order."""

    seen: bytearray
    counts: list[int]
    disorder: int = 0
    last: dict[int, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.counts)


def body_of(number: int) -> bytes:
    """A hundred bytes that look like a small event, and begin with their number."""
    return f'{number:09d} {{"customer": {number * 7919 % 99_991}}}'.ljust(BODY_BYTES, ".").encode()


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal; one line in the end elsewhere."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=output.console()) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def produce(broker: RunningBroker, records: int) -> tuple[Sent, float]:
    """Send all records. The broker is killed when half of them are acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 200_000,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    sent, killer, began = Sent(), Killer(broker), time.monotonic()
    with progress("an idempotent producer sends", records) as show:
        for number in range(records):
            while True:
                try:
                    producer.produce(TOPIC, body_of(number), on_delivery=sent.on_delivery)
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % SHOWN_EVERY == 0:
                producer.poll(0)
                show(sent.acknowledged)
                killer.look(sent.acknowledged, records)
        while producer.flush(0.2):
            show(sent.acknowledged)
            killer.look(sent.acknowledged, records)
        show(sent.acknowledged)
    killer.wait()
    return sent, time.monotonic() - began


class Killer:
    """Kills the broker once, in the middle, and starts it again while the producer goes on."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self._thread: threading.Thread | None = None
        self._failure: StratalogError | None = None

    def look(self, acknowledged: int, records: int) -> None:
        if self._thread is None and acknowledged >= records // 2:
            self._thread = threading.Thread(target=self._kill, args=(acknowledged,))
            self._thread.start()

    def _kill(self, acknowledged: int) -> None:
        self._broker.end(signal.SIGKILL)
        try:
            took = self._broker.start()
        except StratalogError as failure:
            self._failure = failure
            return
        output.say(
            f"SIGKILL after {acknowledged:,} acknowledged records; "
            f"the broker served again {took:.1f} s later"
        )

    def wait(self) -> None:
        if self._thread is None:
            raise Corrupt("the broker was not killed: the records were all acknowledged at once")
        self._thread.join()
        if self._failure is not None:
            raise self._failure


def consume(broker: RunningBroker, records: int) -> tuple[Read, float]:
    """A group reads everything, each consumer in a thread of its own."""
    read = Read(bytearray(records), [0] * CONSUMERS)
    ended, began = threading.Event(), time.monotonic()
    threads = [
        threading.Thread(target=_consumer, args=(broker.address, place, read, ended))
        for place in range(CONSUMERS)
    ]
    for thread in threads:
        thread.start()
    with progress(f"a group of {CONSUMERS} consumers reads", records) as show:
        while read.total < records and time.monotonic() - began < READ_S:
            show(read.total)
            time.sleep(0.1)
        show(read.total)
    took = time.monotonic() - began
    ended.set()
    for thread in threads:
        thread.join()
    return read, took


def _consumer(address: str, place: int, read: Read, ended: threading.Event) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "client.id": f"consumer-{place + 1}",
            "log_level": 0,
        }
    )
    consumer.subscribe([TOPIC])
    while not ended.is_set():
        for message in consumer.consume(AT_A_TIME, 0.2):
            value, partition = message.value(), message.partition()
            if message.error() is not None or value is None or partition is None:
                continue
            number = int(value[:9])
            read.seen[number] = min(255, read.seen[number] + 1)
            read.disorder += number <= read.last.get(partition, -1)
            read.last[partition] = number
            read.counts[place] += 1
    consumer.close()  # commits what it has read


async def prove(broker: RunningBroker, sent: Sent, read: Read, records: int) -> None:
    """Hold together what the producer, the group and the broker say."""
    async with connect(broker.address) as connection:
        topic = await describe_topic(connection, TOPIC)
        group = await describe_group(connection, GROUP)
    stored = sum(each.end - each.start for each in topic.partitions)
    lag = sum(each.lag or 0 for each in group.progress)
    facts = (
        (f"{sent.acknowledged:,} acknowledged, 0 refused", not sent.failed, sent.acknowledged),
        (f"{stored:,} stored: nothing is missing, nothing doubled", True, stored),
        (f"{read.seen.count(1):,} read exactly once", read.total == records, read.seen.count(1)),
        ("each partition in the order of the producer", read.disorder == 0, records),
        (f"the group has committed everything: its lag is {lag}", lag == 0, records),
    )
    output.say("")
    for text, holds, count in facts:
        output.say(f"  {'proven' if holds and count == records else 'BROKEN'}  {text}")
    if not all(holds and count == records for _, holds, count in facts):
        raise Corrupt("the broker broke a promise", hint=f"First error: {sent.failed[:1]}")


async def prepare(broker: RunningBroker) -> None:
    async with connect(broker.address) as connection:
        await create_topic(connection, TOPIC, PARTITIONS, {})


def demo(records: int) -> None:
    with tempfile.TemporaryDirectory(prefix="stratalog-demo-") as folder:
        broker = RunningBroker(Path(folder))
        try:
            took = broker.start()
            output.say(f"stratalog serve at {broker.address} on a fresh directory, in {took:.1f} s")
            asyncio.run(prepare(broker))
            sent, sent_s = produce(broker, records)
            read, read_s = consume(broker, records)
            asyncio.run(prove(broker, sent, read, records))
            output.say(
                f"\nsent in {sent_s:.1f} s, the restart included; read in {read_s:.1f} s "
                f"by {', '.join(f'{count:,}' for count in read.counts)} for each consumer"
            )
            code = broker.end(signal.SIGTERM)
            if code:
                raise Corrupt(f"the broker ended with {code} after SIGTERM")
            output.say("SIGTERM ended the broker with exit code 0.")
        finally:
            broker.end(signal.SIGKILL)
    output.say("\nServe your own: ./dev python -m stratalog serve --data data")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev demo serve", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS, help="how many (%(default)s)")
    arguments = parser.parse_args()
    if not 1000 <= arguments.records < 1_000_000_000:
        parser.error("--records is at least 1000")
    try:
        demo(arguments.records)
    except StratalogError as error:
        output.complain("error", "red", str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
