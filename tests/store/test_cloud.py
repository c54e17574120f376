"""What buckets answer, and what becomes of it. A server that says what it is told helps here."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from obstore import exceptions

from s3_server import S3Server
from stratalog.errors import (
    Conflict,
    Denied,
    Exists,
    Invalid,
    NotFound,
    StratalogError,
    Unavailable,
    Unknown,
)
from stratalog.store import Store, open_store
from stratalog.store.cloud import CloudStore

SECRET = "wJalrXUtnFEMIK7MDENGbPxRfiCYSECRET"


class Parrot(ThreadingHTTPServer):
    """Gives every request the same answer and counts them."""

    daemon_threads = True
    status = 500
    body = ""
    delay_s = 0.0
    requests = 0


class ParrotHandler(BaseHTTPRequestHandler):
    server: Parrot
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        self.server.requests += 1
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        time.sleep(self.server.delay_s)
        body = self.server.body.encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def parrot() -> Iterator[Parrot]:
    with Parrot(("127.0.0.1", 0), ParrotHandler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def store_at(server: Parrot, **options: str) -> Store:
    return CloudStore(
        "s3",
        "bucket",
        {
            "endpoint": f"http://127.0.0.1:{server.server_address[1]}",
            "access_key_id": "AKIAIOSFODNN7EXAMPLE",
            "secret_access_key": SECRET,
            "region": "us-east-1",
            "timeout_s": "2",
            **options,
        },
        environment={},
    )


def create(store: Store) -> None:
    asyncio.run(store.put_if_absent("a/b", b"data"))


def replace(store: Store) -> None:
    asyncio.run(store.put_if_match("a/b", b"data", '"etag"'))


def read(store: Store) -> None:
    asyncio.run(store.get("a/b"))


def enumerate_all(store: Store) -> None:
    async def scenario() -> None:
        async for _ in store.list("a/"):
            pass

    asyncio.run(scenario())


def delete(store: Store) -> None:
    asyncio.run(store.delete_many(["a/b"]))


@pytest.mark.parametrize(
    ("status", "at_create", "at_replace", "at_read", "at_list"),
    [
        (400, Invalid, Invalid, Invalid, Invalid),
        (401, Denied, Denied, Denied, Denied),
        (403, Denied, Denied, Denied, Denied),
        (404, Invalid, Conflict, NotFound, NotFound),
        (409, Exists, Conflict, Unavailable, Unavailable),
        (412, Exists, Conflict, Unavailable, Unavailable),
        (429, Unknown, Unknown, Unavailable, Unavailable),
        (500, Unknown, Unknown, Unavailable, Unavailable),
        (503, Unknown, Unknown, Unavailable, Unavailable),
    ],
)
def test_what_a_status_means(
    parrot: Parrot,
    status: int,
    at_create: type[StratalogError],
    at_replace: type[StratalogError],
    at_read: type[StratalogError],
    at_list: type[StratalogError],
) -> None:
    parrot.status = status
    parrot.body = (
        "<Error><Code>Some</Code><AWSAccessKeyId>AKIAIOSFODNN7EXAMPLE</AWSAccessKeyId>"
        f"<StringToSign>{SECRET}</StringToSign></Error>"
    )
    store = store_at(parrot, timeout_s="0.3")
    for call, kind in (
        (create, at_create),
        (replace, at_replace),
        (read, at_read),
        (enumerate_all, at_list),
    ):
        with pytest.raises(StratalogError) as caught:
            call(store)
        assert type(caught.value) is kind, call.__name__
        said = f"{caught.value} {caught.value.hint} {caught.value!r} {caught.value.__cause__}"
        assert SECRET not in said
        assert "AKIAIOSFODNN7EXAMPLE" not in said


def test_an_expired_token_is_a_matter_of_credentials(parrot: Parrot) -> None:
    parrot.status, parrot.body = 400, "<Error><Code>ExpiredToken</Code></Error>"
    with pytest.raises(Denied):
        create(store_at(parrot))


def test_a_request_that_the_server_found_too_slow_is_not_refused(parrot: Parrot) -> None:
    parrot.status, parrot.body = 400, "<Error><Code>RequestTimeout</Code></Error>"
    store = store_at(parrot, timeout_s="0.3")
    for put in (create, replace):
        with pytest.raises(Unknown):
            put(store)
    for other in (read, enumerate_all, delete):
        with pytest.raises(Unavailable):
            other(store)


@pytest.mark.parametrize("call", [create, replace, read, enumerate_all])
def test_a_wrong_clock_is_denied_with_a_hint(parrot: Parrot, call: object) -> None:
    assert callable(call)
    parrot.status, parrot.body = 403, "<Error><Code>RequestTimeTooSkewed</Code></Error>"
    with pytest.raises(Denied) as caught:
        call(store_at(parrot))
    assert "clock" in caught.value.hint


@pytest.mark.parametrize(
    ("scheme", "variable"),
    [
        ("s3", "AWS_ACCESS_KEY_ID"),
        ("gs", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az", "AZURE_STORAGE_ACCOUNT_KEY"),
    ],
)
def test_each_cloud_says_which_credentials_it_looks_for(scheme: str, variable: str) -> None:
    options = {"account_name": "me"} if scheme == "az" else {}
    store = CloudStore(scheme, "bucket", options, environment={})
    asked = exceptions.GenericError("Error performing GET http://169.254.169.254/x: timed out")
    failure = store._refusal(asked, "a", Unavailable)
    assert isinstance(failure, Unavailable)
    assert f"No credentials were found. Set {variable}" in failure.hint


@pytest.mark.parametrize(("status", "kind"), [(403, Denied), (404, Unavailable)])
def test_a_client_without_credentials_says_so(
    parrot: Parrot, status: int, kind: type[StratalogError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks the machine that it runs on, which has none either."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    parrot.status = status
    address = f"http://127.0.0.1:{parrot.server_address[1]}"
    options = {"metadata_endpoint": address, "allow_http": "true", "timeout_s": "0.3"}
    with pytest.raises(kind) as caught:
        read(CloudStore("s3", "bucket", options, environment={}))
    assert "No credentials were found. Set AWS_ACCESS_KEY_ID" in caught.value.hint


def test_a_conditional_put_is_sent_once_and_a_read_again(parrot: Parrot) -> None:
    parrot.status = 503
    store = store_at(parrot)
    with pytest.raises(Unknown):
        create(store)
    assert parrot.requests == 1
    with pytest.raises(Unknown):
        replace(store)
    assert parrot.requests == 2
    with pytest.raises(Unavailable):
        read(store)
    assert parrot.requests > 3


def test_a_late_answer_leaves_a_put_open(parrot: Parrot) -> None:
    parrot.status, parrot.delay_s = 200, 0.6
    store = store_at(parrot, timeout_s="0.2")
    with pytest.raises(Unknown):
        create(store)


def test_an_endpoint_that_is_not_there(parrot: Parrot) -> None:
    store = store_at(parrot, endpoint="http://127.0.0.1:1", timeout_s="0.2")
    with pytest.raises(Unavailable):
        read(store)
    with pytest.raises(Unavailable):
        delete(store)
    with pytest.raises(Unknown):
        create(store)


def test_an_etag_of_google_carries_its_generation() -> None:
    store = CloudStore("gs", "bucket", {"skip_signature": "true"}, environment={})
    etag = store._etag({"e_tag": '"abc def"', "version": "1700000000000001"})
    assert store._version(etag) == {"e_tag": '"abc def"', "version": "1700000000000001"}


def test_a_store_without_etags_is_refused() -> None:
    store = CloudStore("s3", "bucket", {"skip_signature": "true"}, environment={})
    with pytest.raises(Invalid):
        store._etag({"e_tag": None, "version": None})


@pytest.mark.s3
@pytest.mark.parametrize("call", [create, replace, read, enumerate_all, delete])
def test_wrong_credentials_are_denied(s3_server: S3Server, call: object) -> None:
    assert callable(call)
    options = s3_server.options | {"secret_access_key": SECRET}
    with pytest.raises(Denied) as caught:
        call(open_store(f"s3://{s3_server.bucket}/x", options=options))
    assert SECRET not in str(caught.value)


FORK = """
import asyncio, os, sys
from stratalog.errors import Invalid
from stratalog.store import open_store

url, before = sys.argv[1], sys.argv[2] == "before"
store = open_store(url)
if not before:
    asyncio.run(store.put_if_absent("parent", b"1"))
child = os.fork()
if child == 0:
    status = 2
    try:
        asyncio.run(open_store(url).put_if_absent("child", b"1"))
        status = 0
    except Invalid as refusal:
        status = 1 if "spawn" in refusal.hint else 3
    finally:
        os._exit(status)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.s3
@pytest.mark.parametrize(("when", "status"), [("after", "1"), ("before", "0")])
def test_a_child_forked_after_the_first_use_is_refused_and_one_before_works(
    s3_url: str, when: str, status: str
) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", FORK, s3_url, when],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert finished.stdout.strip() == status, finished.stderr
