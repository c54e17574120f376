"""What a URL or a path names."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from s3_server import S3Server
from stratalog.errors import Invalid
from stratalog.store import DirectoryStore, MemoryStore, PrefixedStore, open_store, redact


def test_a_store_opens_by_url_and_keeps_what_is_put(store_url: str) -> None:
    async def scenario() -> None:
        store = open_store(store_url)
        await store.put_if_absent("a/b", b"bytes")
        assert (await open_store(store.url).get("a/b")).data == b"bytes"
        assert [row.path async for row in store.list()] == ["a/b"]

    asyncio.run(scenario())


def test_a_store_passes_through() -> None:
    store = MemoryStore()
    assert open_store(store) is store
    with pytest.raises(Invalid):
        open_store(store, options={"endpoint": "x"})


def test_a_memory_store_is_the_same_by_name() -> None:
    assert open_store("memory://same") is open_store("memory://same")
    assert open_store("memory://same") is not open_store("memory://other")


def test_a_prefix_is_a_view_of_the_same_store() -> None:
    inner = open_store("memory://prefixes/a/b/")
    assert isinstance(inner, PrefixedStore)
    assert inner.url == "memory://prefixes/a/b"

    async def scenario() -> bytes:
        await inner.put_if_absent("c", b"x")
        return (await open_store("memory://prefixes").get("a/b/c")).data

    assert asyncio.run(scenario()) == b"x"


@pytest.mark.parametrize("spelled", ["file:///tmp/with%20space", "file://localhost/tmp/with space"])
def test_a_file_url_names_a_directory(spelled: str) -> None:
    store = open_store(spelled)
    assert isinstance(store, DirectoryStore)
    assert store.url == "file:///tmp/with%20space"
    assert open_store(store.url).url == store.url


def test_bare_paths_are_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert open_store("logs/a").url == (tmp_path / "logs/a").as_uri()
    assert open_store("~/a").url == (tmp_path / "home/a").as_uri()
    assert open_store(tmp_path / "p").url == (tmp_path / "p").as_uri()
    assert not os.listdir(tmp_path), "opening makes nothing"


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("ftp://host/x", "scheme"),
        ("memory://", "name"),
        ("file://host/x", "local file URL"),
        ("s3:///x", "bucket"),
        ("s3://user:secret@bucket/x", "credentials"),
        ("s3://bucket/x?secret_access_key=hunter22", "secret_access_key"),
        ("s3://bucket/x?timeout_s=soon", "timeout_s"),
        ("s3://bucket/.hidden", "legal"),
        ("", "empty"),
    ],
)
def test_a_wrong_url_is_refused_without_showing_secrets(url: str, part: str) -> None:
    with pytest.raises(Invalid, match=part) as caught:
        open_store(url)
    assert "hunter22" not in f"{caught.value} {caught.value.hint}"
    assert "user:secret" not in f"{caught.value} {caught.value.hint}"


class BytesPath:
    def __fspath__(self) -> bytes:
        return b"x"


@pytest.mark.parametrize("target", [None, b"x", 5, object(), BytesPath()])
def test_what_names_no_store_is_refused(target: object) -> None:
    with pytest.raises(Invalid, match=f"of type {type(target).__name__}") as caught:
        open_store(target)  # type: ignore[arg-type]
    assert "pathlib.Path" in caught.value.hint


@pytest.mark.parametrize("spelled", ["a\0b", "~\0", "file:///a%00b", Path("a\0b")])
def test_a_path_with_a_zero_byte_is_refused(spelled: str | Path) -> None:
    with pytest.raises(Invalid, match="zero byte"):
        open_store(spelled)


def test_an_unknown_scheme_is_told_which_ones_there_are() -> None:
    with pytest.raises(Invalid) as caught:
        open_store("hdfs://x")
    assert "s3://" in caught.value.hint
    assert "memory://" in caught.value.hint


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(Invalid, match="endpointt"):
        open_store("s3://bucket", options={"endpointt": "http://127.0.0.1:1"})
    with pytest.raises(Invalid, match="no options"):
        open_store("memory://x", options={"endpoint": "http://127.0.0.1:1"})


def test_logs_of_one_bucket_share_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def client(url: str, **options: str) -> object:
        store = open_store(url, options=options)
        assert isinstance(store, PrefixedStore)
        return store.inner

    assert client("s3://bucket/a") is client("s3://bucket/b")
    assert client("s3://bucket/a") is not client("s3://bucket/a", region="eu-west-1")
    assert client("s3://bucket/a", region="eu-west-1") is client("s3://bucket/a?region=eu-west-1")
    before = client("s3://bucket/a")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert client("s3://bucket/a") is not before


@pytest.mark.s3
def test_explicit_options_reach_a_bucket_without_the_environment(
    s3_server: S3Server, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in s3_server.environment:
        monkeypatch.delenv(name)

    async def scenario() -> bytes:
        store = open_store(s3_url, options=s3_server.options)
        await store.put_if_absent("k", b"v")
        return (await store.get("k")).data

    assert asyncio.run(scenario()) == b"v"


@pytest.mark.parametrize("scheme", ["gs", "gcs", "az", "azure"])
def test_other_clouds_are_set_up_without_a_request(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5a2V5a2V5")
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    assert open_store(f"{scheme}://bucket/p").url == f"{scheme[:2].replace('gc', 'gs')}://bucket/p"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("s3://user:hunter22@host/x", "hunter22"),
        ("https://b.s3.amazonaws.com/k?X-Amz-Signature=abcdef0123&X-Amz-Date=1", "abcdef0123"),
        ("https://a.blob.core.windows.net/c/b?sv=1&sig=abc%2Fdef", "abc%2Fdef"),
        ("AccessKeyId: AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("the key AKIAIOSFODNN7EXAMPLE is unknown", "AKIAIOSFODNN7EXAMPLE"),
        ('{"secret_access_key": "wJalrXUtnFEMI/K7MDENG"}', "wJalrXUtnFEMI"),
        ("aws_session_token=FwoGZXIvYXdzEBY", "FwoGZXIvYXdzEBY"),
        ("Authorization: Bearer ya29.abc", "ya29.abc"),
        ("<AWSAccessKeyId>XYZXYZ</AWSAccessKeyId>", "XYZXYZ"),
        ("AccountKey=Zm9vYmFy==;EndpointSuffix=x", "Zm9vYmFy"),
    ],
)
def test_redaction_hides_secrets(text: str, secret: str) -> None:
    assert secret not in redact(text)


def test_redaction_leaves_the_rest() -> None:
    text = "log/Bucket=0/Writer=a-1/FragmentSeqNo=1.parquet in s3://bucket/prefix: not found"
    assert redact(text) == text
