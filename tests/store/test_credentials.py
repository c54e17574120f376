"""A URL with a secret is refused wherever one is given, and never repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

import stratalog as sl
from cli.calls import call, new_log
from objectlog.wrapped_stores import PassingStore
from stratalog.errors import Invalid
from stratalog.objectlog.stored import MANIFEST_PATH, Link, Seal, as_fields, sealed
from stratalog.objectlog.stored.manifest import Manifest
from stratalog.store import MemoryStore, open_store
from stratalog.store.credentials import check_without_secret

SECRET = "hunter22"
SECRET_URLS = (
    f"s3://user:{SECRET}@bucket/log",
    f"s3://{SECRET}@bucket/log",
    f"s3://user%3A{SECRET}%40bucket/log",
    f"s3://key:{SECRET}/log",
    f"s3a://bucket/log?endpoint=https://user:{SECRET}@host:1",
    f"s3://bucket/log?endpoint=https%3A%2F%2Fuser%3A{SECRET}%40host",
    f"s3://bucket/log?region=x&endpoint=http://{SECRET}@host",
    f"s3://bucket/log?endpoint=user:{SECRET}@host",
    f"s3://bucket/log?endpoint=http://host/KEY:{SECRET}",
    f"s3://bucket/log?region=user:{SECRET}@host",
    f"s3://bucket/log?endpoint=https://host/?X-Amz-Signature={SECRET}",
    f"s3://bucket/log?secret_access_key={SECRET}",
    f"s3://bucket/log?AWS_SECRET_ACCESS_KEY={SECRET}",
    f"s3://bucket/log?session_token={SECRET}",
    f"s3://bucket/log?X-Amz-Signature={SECRET}",
    f"az://container/log?sv=1&sig={SECRET}",
    f"az://container/log?sas_token={SECRET}",
    f"gs://user:{SECRET}@bucket/log",
    f"memory://user:{SECRET}@name/log",
    f"file://user:{SECRET}@host/log",
    f"https://user:{SECRET}@host/log",
    f"ftp://user:{SECRET}@host/log",
)
PLAIN_URLS = (
    "s3://bucket/log@home",
    "s3://bucket/a:b?endpoint=http://127.0.0.1:8333&region=eu-central-1",
    "gs://bucket/x",
    "file:///srv/a@b/log?password=none",
    "memory://name/a@b",
    "memory://a@b",
    "s3://bucket/log?endpoint=http://[::1]:8333/path",
    "s3://bucket/log?endpoint=host:8333/path",
    "/srv/user:name@host/log",
    "relative/log",
)

Given = Callable[[str], Awaitable[object]]


async def opened(manager: object) -> None:
    async with manager:  # type: ignore[attr-defined]
        raise AssertionError("it was opened")


def made(make: Callable[[str], object]) -> Given:
    async def work(url: str) -> object:
        return make(url)

    return work


PLACES: dict[str, Given] = {
    "open_store": made(open_store),
    "create_log": lambda url: sl.create_log(url),
    "LogWriter": lambda url: opened(sl.LogWriter.open(url)),
    "LogReader": lambda url: opened(sl.LogReader.open(url)),
    "CursorStore": made(lambda url: sl.CursorStore(url)),
    "PinStore": made(lambda url: sl.PinStore(url)),
    "PolicyStore": made(lambda url: sl.PolicyStore(url)),
    "Collector": made(lambda url: sl.Collector(url)),
    "UploadGuard": lambda url: sl.UploadGuard.register(url),
    "migrate from": lambda url: sl.Sealer(url).migrate("memory://next"),
    "migrate to": lambda url: sl.Sealer("memory://secrets").migrate(url),
    "fork from": lambda url: sl.fork(url, "memory://fork"),
    "fork to": lambda url: sl.fork("memory://secrets", url),
    "copy from": lambda url: sl.copy_log(url, "memory://copy"),
    "copy to": lambda url: sl.copy_log("memory://secrets", url),
    "backup from": lambda url: sl.backup(url, "memory://backup"),
    "backup to": lambda url: sl.backup("memory://secrets", url),
    "restore from": lambda url: sl.restore(url, "memory://restored"),
    "restore to": lambda url: sl.restore("memory://backup", url),
    "list_backups": lambda url: sl.list_backups(url),
    "check_backup": lambda url: sl.check_backup(url),
    "collect": lambda url: sl.collect(url),
    "sweep": lambda url: sl.sweep(url),
    "scrub": lambda url: sl.scrub(url),
    "verify": lambda url: sl.verify(url),
    "compact": lambda url: sl.compact(url, sl.IndexSet(), up_to=1),
    "erase": lambda url: sl.erase(url, sl.IndexSet(range(1, 2))),
    "destroy": lambda url: sl.destroy(url),
    "certificates": lambda url: sl.list_certificates(url),
    "Herd": lambda url: opened(sl.Herd.open(url, server="a")),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("url", SECRET_URLS)
def test_it_is_refused_before_anything_else(place: str, url: str) -> None:
    async def main() -> None:
        await sl.create_log("memory://secrets", exist_ok=True)
        before = (await open_store("memory://secrets").get(MANIFEST_PATH)).data
        with pytest.raises(Invalid, match="must not carry credentials") as caught:
            await PLACES[place](url)
        error = caught.value
        assert SECRET not in f"{error} {error.hint} {error!r} {error.__dict__}"
        assert "AWS_ACCESS_KEY_ID" in error.hint
        assert (await open_store("memory://secrets").get(MANIFEST_PATH)).data == before

    asyncio.run(main())


@pytest.mark.parametrize("url", PLAIN_URLS)
def test_what_is_no_secret_passes(url: str) -> None:
    check_without_secret(url)


def test_an_account_of_azure_is_told_where_it_belongs() -> None:
    with pytest.raises(Invalid, match="names a container and no account") as caught:
        open_store("az://container@account/log")
    assert "az://CONTAINER/PATH" in caught.value.hint
    assert "AZURE_STORAGE_ACCOUNT_NAME" in caught.value.hint
    with pytest.raises(Invalid, match="credentials"):
        open_store(f"az://user:{SECRET}@container/log")


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ({"endpoint": f"https://user:{SECRET}@host"}, {}),
        ({"aws_endpoint_url": f"https://{SECRET}@host"}, {}),
        ({}, {"AWS_ENDPOINT_URL": f"https://user:{SECRET}@host"}),
    ],
)
def test_an_endpoint_with_a_secret_is_refused_wherever_it_comes_from(
    options: dict[str, str], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Invalid, match="credentials") as caught:
        open_store("s3://bucket/log", options=options)
    assert SECRET not in f"{caught.value} {caught.value.hint}"


def test_a_store_of_ones_own_that_shows_a_secret_is_refused() -> None:
    class Careless(PassingStore):
        @property
        def url(self) -> str:
            return f"db://user:{SECRET}@host/log"

    with pytest.raises(Invalid, match="credentials") as caught:
        open_store(Careless(MemoryStore()))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["init", "URL"],
        ["info", "URL"],
        ["append", "URL"],
        ["read", "URL"],
        ["migrate", "LOG", "URL"],
        ["fork", "LOG", "URL"],
        ["copy", "LOG", "URL"],
        ["backup", "LOG", "URL"],
        ["restore", "URL", "LOG"],
        ["backups", "URL"],
        ["sweep", "URL"],
        ["destroy", "URL", "--yes"],
        ["doctor", "URL"],
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_no_command_repeats_it(arguments: list[str], as_json: bool) -> None:
    url = f"s3://bucket/log?endpoint=https://user:{SECRET}@host"
    given = [{"URL": url, "LOG": new_log(b"a")}.get(each, each) for each in arguments]
    done = call(*given, *(["--json"] if as_json else []), code=2)
    assert "credentials" in done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_the_hint_of_a_sealed_log_hides_what_an_older_version_stored() -> None:
    url = f"s3://bucket/log?endpoint=https://user:{SECRET}@host"
    seal = as_fields(Seal(successor=Link(url=url, id="a")))
    manifest = Manifest.empty("w", "id")
    error = sealed(msgspec.structs.replace(manifest, seal=seal))
    assert SECRET not in error.hint
    assert "s3://bucket/log" in error.hint
