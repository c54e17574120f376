"""Buckets of S3, Google Cloud Storage and Azure, through obstore.

What is particular here, and why:

- Every call is obstore's blocking one, made on our bounded threads. Its async calls can abort the
  interpreter at exit.
- Conditional puts go through a client that never retries. A client that repeats them by itself
  reports "precondition failed" for a write that landed. Reads, listings and deletes may be
  repeated, and go through a second client that does so for as long as one time-out.
- obstore does not survive a fork. A forked child whose parent has used it gets an error at once,
  where it would hang for ever.
- Listings are promised in byte order. Some servers order by directory instead (``a/b`` before
  ``a-b``), so rows pass a window that puts them right; a row later than that is an error, not a
  silent disorder.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

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
from stratalog.runtime import Runtime, cpu_turn, run_blocking
from stratalog.store.listing import begin_after, can_match, in_byte_order, is_past
from stratalog.store.protocol import Blob, Head, Listed, check_path
from stratalog.store.redaction import HIDDEN, redact

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutResult, UpdateVersion
    from obstore.store import ClientConfig, RetryConfig

T = TypeVar("T")
Client = S3Store | GCSStore | AzureStore
_CLIENTS: Mapping[str, type[Client]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}

TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 5.0
READ_RETRIES_MAX = 5
LIST_ROWS_PER_HOP = 1000
LIST_WINDOW_ROWS = 1000

_CLIENT_OPTIONS = frozenset(
    """allow_http allow_invalid_certificates default_content_type http1_only http2_only
    http2_keep_alive_interval http2_keep_alive_timeout http2_keep_alive_while_idle
    pool_idle_timeout pool_max_idle_per_host proxy_url proxy_ca_certificate proxy_excludes
    randomize_addresses read_timeout root_certificate user_agent""".split()
)
_TAKEN = (exceptions.AlreadyExistsError, exceptions.PreconditionError)
_FAILURES = (exceptions.BaseError, OSError, ValueError, RuntimeError)
_REFUSED = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
_STATUS = re.compile(r"status code: (\d{3})")
_ILLEGAL = (400, 405, 411, 413, 414, 416, 501)
_SLOW = re.compile(r"<Code>RequestTimeout</Code>")
_SKEWED = re.compile(r"<Code>RequestTimeTooSkewed</Code>")
_EXPIRED = re.compile(r"<Code>(ExpiredToken|InvalidToken|TokenRefreshRequired)</Code>")
_SECRET_SETTING = re.compile(r"key|secret|token|password|sas|credential", re.IGNORECASE)
_INSTANCE = re.compile(
    r"//169\.254\.|/latest/(?:api/token|meta-data)|/computeMetadata/|/metadata/identity"
)
"""Where a client asks for the credentials of its machine when it has found none."""

_NO_CREDENTIALS = {
    scheme: f"No credentials were found. Set {names} (docs/stores.md)."
    for scheme, names in (
        ("s3", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ("gs", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az", "AZURE_STORAGE_ACCOUNT_KEY"),
    )
}
_REASON_CHARS_MAX = 600

_used_by_pid: int | None = None


def _claim_process() -> None:
    """Remember which process uses obstore; refuse in a child forked after that."""
    global _used_by_pid
    pid = os.getpid()
    if _used_by_pid is None:
        _used_by_pid = pid
    elif _used_by_pid != pid:
        raise Invalid(
            "this process was forked from one that had already used a bucket, where the client "
            "library would hang",
            hint='Start processes with the "spawn" method, or fork before the first use.',
        )


class CloudStore:
    """One bucket. ``scheme`` is ``s3``, ``gs`` or ``az``; ``options`` as in ``locate``."""

    def __init__(
        self, scheme: str, bucket: str, options: Mapping[str, str], environment: Mapping[str, str]
    ) -> None:
        settings = {name.lower(): value for name, value in options.items()}
        self._scheme = scheme
        self._bucket = bucket
        self._secrets = tuple(
            value
            for name, value in (*settings.items(), *environment.items())
            if _SECRET_SETTING.search(name) and len(value) >= 6
        )
        timeout_s = _seconds(settings, "timeout_s", TIMEOUT_S)
        connect_timeout_s = _seconds(settings, "connect_timeout_s", CONNECT_TIMEOUT_S)
        transport: dict[str, object] = {
            name: settings.pop(name) for name in _CLIENT_OPTIONS & settings.keys()
        }
        transport["timeout"] = timedelta(seconds=timeout_s)
        transport["connect_timeout"] = timedelta(seconds=connect_timeout_s)
        if any(
            value.lower().startswith("http://")
            for name, value in (*settings.items(), *environment.items())
            if "endpoint" in name.lower() or "base_url" in name.lower()
        ):
            transport.setdefault("allow_http", True)
        conditions = {"conditional_put": "etag"} if scheme == "s3" else {}

        def client(retries: RetryConfig) -> Client:
            return _CLIENTS[scheme](
                bucket,
                config=cast(Any, {**conditions, **settings}),
                client_options=cast("ClientConfig", transport),
                retry_config=retries,
            )

        try:
            self._puts = client({"max_retries": 0})
            self._reads = client(
                {
                    "max_retries": READ_RETRIES_MAX,
                    "retry_timeout": timedelta(seconds=timeout_s),
                    "backoff": {"init_backoff": timedelta(milliseconds=100), "base": 2},
                }
            )
        except (exceptions.BaseError, ValueError, TypeError) as error:
            raise Invalid(
                f"{self.url} cannot be set up: {self._reason(error)}",
                hint="Check the options and the environment variables of this kind of store.",
            ) from None

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self._bucket}"

    async def get(self, path: str) -> Blob:
        def work() -> Blob:
            found = obstore.get(self._reads, path)
            return Blob(found.bytes().to_bytes(), self._etag(found.meta))

        return await self._read(check_path(path), work)

    async def get_range(self, path: str, start: int, length: int) -> bytes:
        check_path(path)
        if start < 0 or length < 0:
            raise Invalid(f"bytes {start}+{length} are outside of {path}", path=path)

        def work() -> bytes:
            if length == 0:
                size = obstore.head(self._reads, path)["size"]
                data = b""
            else:
                data = obstore.get_range(self._reads, path, start=start, length=length).to_bytes()
                size = start + len(data)
            if start + length > size:
                raise Invalid(f"bytes {start}+{length} are outside of {path}", path=path)
            return data

        return await self._read(path, work)

    async def head(self, path: str) -> Head:
        def work() -> Head:
            found = obstore.head(self._reads, path)
            return Head(path, found["size"], self._etag(found), found["version"])

        return await self._read(check_path(path), work)

    async def put_if_absent(self, path: str, data: bytes) -> str:
        check_path(path)
        return await self._call(lambda: self._create(path, data))

    async def create_made(self, path: str, make: Callable[[], bytes], _runtime: Runtime) -> None:
        check_path(path)

        def work() -> None:
            with cpu_turn():
                data = make()
            self._create(path, data)

        await self._call(work, "put")

    def _create(self, path: str, data: bytes) -> str:
        taken = Exists(f"{path} exists in {self.url}", path=path)
        return self._put(path, data, "create", taken, _TAKEN)

    async def put_if_match(self, path: str, data: bytes, etag: str) -> str:
        check_path(path)
        changed = Conflict(f"{path} changed in {self.url}, or is gone", path=path, expected=etag)
        refusals = (*_TAKEN, FileNotFoundError)
        return await self._call(
            lambda: self._put(path, data, self._version(etag), changed, refusals)
        )

    def _put(
        self,
        path: str,
        data: bytes,
        mode: Literal["create"] | UpdateVersion,
        refused: StratalogError,
        refusals: tuple[type[Exception], ...],
    ) -> str:
        """An answer that says no is final. Everything else leaves open what happened."""
        try:
            return self._etag(obstore.put(self._puts, path, data, mode=mode, use_multipart=False))
        except refusals:
            raise refused from None
        except _FAILURES as error:
            failure = self._refusal(error, path, Unknown)
            if isinstance(failure, NotFound):
                failure = Invalid(
                    f"the bucket of {self.url} was not found", path=path, hint="Create it first."
                )
            raise failure from None

    async def list(self, prefix: str = "", after: str = "") -> AsyncIterator[Listed]:
        rows = in_byte_order(self._rows(prefix, after), LIST_WINDOW_ROWS)

        def work() -> Sequence[Listed]:
            return [*itertools.islice(rows, LIST_ROWS_PER_HOP)]

        while batch := await self._read(prefix, work):
            for row in batch:
                yield row

    async def delete_many(self, paths: Sequence[str]) -> None:
        unique = [check_path(path) for path in dict.fromkeys(paths)]
        if not unique:
            return

        def work() -> None:
            try:
                obstore.delete(self._reads, unique)
            except FileNotFoundError:
                for path in unique:
                    try:
                        obstore.delete(self._reads, path)
                    except FileNotFoundError:
                        continue

        await self._read(unique[0], work)

    def _rows(self, prefix: str, after: str) -> Iterator[Listed]:
        """The server's rows. obstore's prefixes are whole directories: the rest is done here."""
        if not can_match(prefix):
            return
        base = prefix[: prefix.rfind("/") + 1]
        offset = begin_after(prefix, after)
        chunks = obstore.list(
            self._reads,
            base.rstrip("/") or None,
            offset=offset if offset > base else None,
            chunk_size=LIST_ROWS_PER_HOP,
        )
        for chunk in chunks:
            for found in chunk:
                path = found["path"]
                if path.startswith(prefix) and path > after:
                    yield Listed(path, found["size"])
                elif is_past(path, prefix):
                    return

    def _etag(self, found: ObjectMeta | PutResult) -> str:
        """Etag and version as one opaque string. Only Google compares the version."""
        etag = found["e_tag"]
        if etag is None:
            raise Invalid(
                f"{self.url} gives its objects no etag, so they cannot be replaced safely",
                hint="Run `stratalog doctor` on it.",
            )
        return f"{found['version']} {etag}" if self._scheme == "gs" else etag

    def _version(self, etag: str) -> UpdateVersion:
        if self._scheme == "gs":
            version, _, etag = etag.partition(" ")
            return {"e_tag": etag, "version": version}
        return {"e_tag": etag}

    async def _call(self, work: Callable[[], T], purpose: str = "io") -> T:
        _claim_process()
        return await run_blocking(work, purpose)

    async def _read(self, path: str, work: Callable[[], T]) -> T:
        """Run what may be repeated, and translate how it failed."""

        def translated() -> T:
            try:
                return work()
            except _FAILURES as error:
                raise self._refusal(error, path, Unavailable) from None

        return await self._call(translated)

    def _refusal(
        self, error: Exception, path: str, otherwise: type[StratalogError]
    ) -> StratalogError:
        """What a failure of obstore means. ``otherwise`` is for one that leaves it open."""
        reason = f"{path} in {self.url}: {self._reason(error)}"
        status = _STATUS.search(str(error))
        code = int(status[1]) if status else 0
        hint = _NO_CREDENTIALS[self._scheme] if _INSTANCE.search(str(error)) else None
        if _SKEWED.search(str(error)):
            return Denied(
                reason, path=path, hint="Set the clock of this machine: signatures carry its time."
            )
        if isinstance(error, _REFUSED) or code in (401, 403) or _EXPIRED.search(str(error)):
            return Denied(reason, path=path, hint=hint)
        # Another 404 may be that of a credentials endpoint; for a listing the client has no word.
        absent = code == 404 and "performing list request" in str(error)
        if isinstance(error, FileNotFoundError) or absent:
            return NotFound(reason, path=path, hint="Check the bucket and the path.")
        if isinstance(error, exceptions.NotSupportedError):
            return Invalid(
                f"this store lacks an operation that is needed: {reason}",
                path=path,
                hint="Run `stratalog doctor` on it.",
            )
        if _SLOW.search(str(error)):
            return otherwise(reason, path=path)
        if isinstance(error, exceptions.InvalidPathError | ValueError) or code in _ILLEGAL:
            return Invalid(
                f"the store refused the request: {reason}",
                path=path,
                hint=hint or "Check the endpoint, the region and the name of the bucket.",
            )
        return otherwise(reason, path=path, hint=hint)

    def _reason(self, error: Exception) -> str:
        """The part of obstore's message that is for people, without secrets."""
        text = str(error).partition("Debug source")[0].strip()
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return redact(text)[:_REASON_CHARS_MAX] or type(error).__name__


def _seconds(settings: dict[str, str], name: str, default: float) -> float:
    """Take a time-out out of the settings."""
    text = settings.pop(name, None)
    if text is None:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise Invalid(
            f"{name} must be a number of seconds up to 3600, not {text!r}",
            hint="Give a number above 0, such as 30.",
        )
    return seconds
