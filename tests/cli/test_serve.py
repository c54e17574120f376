"""`serve` as a process: how it starts, what it says, how it ends."""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from cli.calls import call
from clients.confluent import Confluent
from clients.published_client import Sent
from clients.running_broker import PATIENCE_S, RunningBroker

LONG_POLLS = 20
SHUTDOWN_MS = 8_000


def _page(broker: RunningBroker, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(broker.http, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.01)


def test_it_says_where_it_serves_and_that_it_is_well(broker: RunningBroker) -> None:
    (ready,) = [line for line in broker.said().splitlines() if line.startswith("ready ")]
    assert ready == f"ready kafka={broker.address} http={broker.http}"
    assert not {broker.address, broker.http} & {"127.0.0.1:0", "127.0.0.1:9092"}
    assert _page(broker, "/healthz") == (200, b'{"status":"alive"}\n')
    status, body = _page(broker, "/readyz")
    assert (status, json.loads(body)["state"]) == (200, "serving")
    assert _page(broker, "/elsewhere")[0] == 404
    Confluent(broker.address).create_topic("counted")
    status, body = _page(broker, "/metrics")
    assert status == 200
    assert re.search(rb'\nstratalog_broker_request_seconds_count{api="CreateTopics"} [1-9]', body)


def test_a_second_start_on_the_same_directory_is_refused_and_the_first_goes_on(
    broker: RunningBroker,
) -> None:
    data = str(broker.data)
    said = call("serve", "--data", data, "--http", "none", code=5).stderr
    assert f"opening the data directory {data}\n" in said
    assert "error: another process has this data directory open\nnext: Stop it first." in said
    assert _page(broker, "/readyz")[0] == 200


@pytest.mark.parametrize("option", ["--listen", "--http"])
def test_a_port_that_is_taken_is_named_with_the_option_to_change(
    broker: RunningBroker, tmp_path: Path, option: str
) -> None:
    places = {"--listen": "127.0.0.1:0", "--http": "127.0.0.1:0"} | {option: broker.address}
    where = [word for pair in places.items() for word in pair]
    said = call("serve", "--data", str(tmp_path / "data"), *where, code=11).stderr
    assert broker.address in said
    assert "in use" in said
    assert option in said.split("next: ")[1]


def test_an_error_in_a_log_of_json_is_json(broker: RunningBroker) -> None:
    args = ("--data", str(broker.data), "--http", "none", "--log-format", "json")
    said = call("serve", *args, code=5).stderr
    told = [json.loads(line) for line in said.splitlines()][-1]
    assert (told["level"], told["kind"], told["exit_code"]) == ("error", "conflict", 5)
    assert told["hint"].startswith("Stop it first.")


@pytest.mark.parametrize(
    ("args", "code", "said", "hint"),
    [
        (["serve"], 2, "no data directory is named", "--data DIR, STRATALOG_DATA"),
        (["serve", "--data", "FILE"], 2, "is a file, not a directory", "--data DIR"),
        (["serve", "--data", "FILE/data"], 11, "Not a directory", ""),
        (["serve", "--data", "D", "--listen", "nowhere"], 2, "is not an address", "HOST:PORT"),
        (["serve", "--data", "D", "--listen", "0.0.0.0:0"], 2, "cannot be told", "--advertise"),
        (["serve", "--data", "D", "--shutdown-ms", "0"], 2, "from 1, not 0", ""),
        (["serve", "--data", "D", "--shutdown-ms", "soon"], 2, "--shutdown-ms", ""),
        (["serve", "--data", "D", "--log-format", "xml"], 2, "--log-format", ""),
        (["serve", "--data", "D", "--retention-ms", "long"], 2, "a whole number", "--help"),
        (["serve", "--data", "D", "--config", "FILE"], 2, "there is no option 'lisen'", "listen"),
        (["serve", "--data", "D", "--config", "none.toml"], 3, "no file none.toml", "--config"),
    ],
    ids=lambda value: " ".join(value[1:]) if isinstance(value, list) else "",
)
def test_a_wrong_start_says_what_to_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    code: int,
    said: str,
    hint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("FILE").write_text('lisen = "127.0.0.1:1"\n')
    told = call(*args, code=code).stderr
    error, _, following = told.partition("\nnext: ")
    assert said in error
    assert hint in following
    assert not Path("D").exists()


def test_it_does_not_begin_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    told = call("serve", "--data", "data", code=2).stderr
    assert told.startswith("error: the broker does not run on Windows\nnext: Run it on Linux")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)
    told = call("serve", "--data", str(tmp_path / "data"), "--http", "none", code=12).stderr
    assert str(tmp_path / "data") in told


def test_options_come_from_three_places_and_clients_are_told_what_is_advertised(
    tmp_path: Path,
) -> None:
    """And the log is JSON throughout, but for the line that says that it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        advertised = f"127.0.0.1:{other.getsockname()[1]}"
        config = tmp_path / "broker.toml"
        config.write_text('log_format = "json"\nnode_id = 7\nauto_create = true\n')
        broker = RunningBroker(
            tmp_path,
            "--http",
            "none",
            "--config",
            str(config),
            "--advertise",
            advertised,
            STRATALOG_NODE_ID="8",
            STRATALOG_AUTO_CREAT="no",
        )
        try:
            assert broker.http == "none"
            asked = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
            found = asked.list_topics(timeout=PATIENCE_S).brokers.values()
            assert [(each.id, f"{each.host}:{each.port}") for each in found] == [(8, advertised)]
        finally:
            broker.ends()
    lines = [line for line in broker.said().splitlines() if not line.startswith("ready ")]
    logged = [json.loads(line) for line in lines]
    assert all({"time", "level", "logger", "message"} <= each.keys() for each in logged)
    (warning,) = [each["message"] for each in logged if each["level"] == "warning"]
    assert "STRATALOG_AUTO_CREAT is no option" in warning
    assert logged[-1]["message"] == "stopped"


def test_a_sigterm_ends_it_in_time_with_clients_and_long_polls(tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path, "--shutdown-ms", str(SHUTDOWN_MS))
    with ExitStack() as ending:
        ending.callback(broker.ends)
        client = Confluent(broker.address)
        client.create_topic("polled")
        for _ in range(LONG_POLLS):
            ending.callback(_long_poll(broker.address).close)
        host, port = broker.address.split(":")
        silent = ending.enter_context(socket.create_connection((host, int(port))))
        silent.sendall(b"\0\0")  # half of a length
        _until(lambda: _waiting(broker) >= LONG_POLLS, "all polls wait at the broker")
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < SHUTDOWN_MS / 1000
        assert "in time" not in broker.said()


def _long_poll(address: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "fetch.wait.max.ms": 60_000,
            "socket.timeout.ms": 90_000,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("polled", 0, 0)])
    return consumer


def _waiting(broker: RunningBroker) -> int:
    """How many clients are connected, each by two connections while it polls."""
    _, body = _page(broker, "/metrics")
    (line,) = [each for each in body.splitlines() if each.startswith(b"stratalog_broker_conn")][:1]
    return int(line.split()[1]) // 2


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux's prlimit")
def test_on_a_full_disk_it_says_so_serves_readers_and_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    broker = RunningBroker(tmp_path)
    try:
        client = Confluent(broker.address)
        client.create_topic("kept")
        client.produce("kept", [Sent(b"before")] * 100)
        _limit_files(broker, 4096)
        answers: list[KafkaError | None] = []

        def answered(error: KafkaError | None, _: Message) -> None:
            answers.append(error)

        producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0, "log_level": 0})
        for _ in range(20):
            producer.produce("kept", b"x" * 500_000, on_delivery=answered)
        _until(lambda: _page(broker, "/readyz")[0] == 503, "the broker is not ready")
        (reason,) = json.loads(_page(broker, "/readyz")[1])["reasons"]
        assert "the disk cannot be written" in reason
        assert _page(broker, "/healthz")[0] == 200
        assert len(client.read("kept", 0, 100)) == 100
        _limit_files(broker, resource.RLIM_INFINITY)
        assert producer.flush(PATIENCE_S) == 0
        assert answers == [None] * 20
        _until(lambda: _page(broker, "/readyz")[0] == 200, "the broker is ready again")
        assert client.ends("kept")[1] >= 120
    finally:
        broker.ends()


def _limit_files(broker: RunningBroker, size: int) -> None:
    """No file of the broker may grow beyond this size: the nearest thing to a full disk."""
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
