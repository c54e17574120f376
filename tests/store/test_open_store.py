"""What a URL or a path names."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from s3_server import S3Server
from stratalog.errors import Invalid
from stratalog.store import DirectoryStore, MemoryStore, PrefixedStore, open_store, redact
from stratalog.store.locate import sibling


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
        ("s3:/user:secret@bucket/x?sig=hunter22", "misspelt"),
        ("", "empty"),
    ],
)
def test_a_wrong_url_is_refused_without_showing_secrets(url: str, part: str) -> None:
    with pytest.raises(Invalid, match=part) as caught:
        open_store(url)
    assert "hunter22" not in f"{caught.value} {caught.value.hint}"
    assert "user:secret" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ("s3:/bucket/x", "s3://bucket/x"),
        ("s3:bucket", "s3://bucket"),
        ("s3//bucket/x", "s3://bucket/x"),
        ("S3:/bucket/x", "s3://bucket/x"),
        ("s3a:/bucket/x", "s3a://bucket/x"),
        ("gs:/bucket/x", "gs://bucket/x"),
        ("az:/container/x", "az://container/x"),
        ("memory:/x", "memory://x"),
        ("file:/tmp/x", "file:///tmp/x"),
    ],
)
def test_a_misspelt_url_does_not_become_a_directory(spelled: str, meant: str) -> None:
    with pytest.raises(Invalid, match="misspelt URL") as caught:
        open_store(spelled)
    assert caught.value.hint == f"Write {meant}; for a directory of that name write ./{spelled}."
    assert open_store(f"./{spelled}").url.startswith("file:///")


def test_a_url_that_was_made_a_path_does_not_become_a_directory(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="s3:/bucket/x") as caught:
        open_store(Path("s3://bucket/x"))
    assert "s3://bucket/x as text" in caught.value.hint
    assert open_store(tmp_path / "s3:/bucket/x").url.startswith("file:///")


@pytest.mark.parametrize("path", ["s3", "s3/x", "s3-logs//x", "logs/s3:/x", "memory", "gs.d/x"])
def test_a_directory_may_be_called_like_a_scheme(path: str) -> None:
    assert open_store(path).url.startswith("file:///")


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


def test_another_place_of_a_bucket_is_reached_through_the_open_client() -> None:
    store = open_store("s3://bucket/a", options={"region": "eu-west-1"})
    assert isinstance(store, PrefixedStore)
    for spelled in ("s3://bucket/b", "s3://bucket/b/", "s3://bucket/b?"):
        other = sibling(store, spelled)
        assert isinstance(other, PrefixedStore)
        assert (other.url, other.inner) == ("s3://bucket/b", store.inner)
    assert sibling(store, "s3://bucket/") is store.inner


def test_another_place_with_options_is_reached_with_these() -> None:
    store = open_store("s3://bucket/a?region=eu-west-1")
    assert isinstance(store, PrefixedStore)
    for region, is_same in (("eu-west-1", True), ("us-east-1", False)):
        other = sibling(store, f"s3://bucket/b?region={region}")
        assert isinstance(other, PrefixedStore)
        assert other.url == "s3://bucket/b"
        assert (other.inner is store.inner) is is_same


def test_a_question_mark_elsewhere_than_in_a_bucket_is_part_of_the_name() -> None:
    inner = MemoryStore("unnamed")
    other = sibling(PrefixedStore(inner, "a"), "memory://unnamed/b?region=c")
    assert isinstance(other, PrefixedStore)
    assert (other.url, other.inner) == ("memory://unnamed/b?region=c", inner)


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
