"""From what a person writes to a store: URLs, paths, and stores themselves.

    memory://name[/prefix]        this process's memory
    file:///path, a bare path     a local directory
    s3://bucket[/prefix]          S3 and what speaks its protocol (also s3a://)
    gs://bucket[/prefix]          Google Cloud Storage (also gcs://)
    az://container[/prefix]       Azure Blob Storage (also azure://)

Endpoint, region and credentials come from the usual environment variables (``AWS_*``,
``GOOGLE_*``, ``AZURE_*``) or from ``options``, whose keys are those of obstore (``endpoint``,
``access_key_id``, …) plus ``timeout_s`` and ``connect_timeout_s``. A URL may carry the few options
that are no secrets: ``s3://bucket/logs?endpoint=http://127.0.0.1:8333&region=eu-central-1``.

All stores of one bucket with the same settings share one client, so thousands of logs cost one
pool of connections.

A log that was forked reads objects of the log that it came from. Credentials and endpoints are not
stored with it, so ``sibling`` opens the other place through the client that is open already. A URL
that carries options asks for a client with these, so it is opened as it is.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote

from stratalog.errors import Invalid
from stratalog.store.counted import CountedStore
from stratalog.store.credentials import (
    check_options_without_secret,
    check_without_secret,
    secret_refused,
)
from stratalog.store.directory import DirectoryStore
from stratalog.store.memory import MemoryStore
from stratalog.store.patient import PatientStore
from stratalog.store.prefixed import PrefixedStore
from stratalog.store.protocol import Store
from stratalog.store.redaction import redact

StoreLike = str | os.PathLike[str] | Store

CLOUD_SCHEMES = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "azure": "az",
}
SCHEMES = ("memory", "file", *CLOUD_SCHEMES)
URL_OPTIONS = ("endpoint", "region", "timeout_s", "connect_timeout_s")
CLIENTS_MAX = 256

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)
_MISSPELT_URL = re.compile(rf"({'|'.join(SCHEMES)})(:/*|//+)(.*)", re.DOTALL | re.IGNORECASE)


def open_store(target: StoreLike, *, options: Mapping[str, str] | None = None) -> Store:
    """The store that ``target`` names. A store passes through. Nothing is read or made yet."""
    if isinstance(target, Store):
        check_without_secret(target.url)
        if options:
            raise Invalid(
                "options go with a URL, not with a store that is open already",
                hint="Give them to open_store with the URL, and pass on the store.",
            )
        return target
    location = _text_of(target)
    check_without_secret(location)
    check_options_without_secret((options or {}).items())
    url = _URL.fullmatch(location) if isinstance(target, str) else None
    if url is None:
        if not location:
            raise Invalid("an empty path names no store", hint='Use "." for this directory.')
        _refuse_misspelt_url(target, location)
        return _directory(location, options)
    scheme, rest = url[1].lower(), url[2]
    if scheme == "file":
        host, slash, path = rest.partition("/")
        if host not in ("", "localhost") or not slash:
            raise Invalid(
                f"not a local file URL: {location!r}", hint="Write file:///absolute/path."
            )
        return _directory(unquote(f"/{path}"), options)
    if scheme == "memory":
        _no_options(options, "memory")
        name, _, prefix = rest.partition("/")
        if not name:
            raise Invalid("a memory store needs a name", hint="Write memory://name.")
        return _under(MemoryStore.named(name), prefix)
    if scheme in CLOUD_SCHEMES:
        return _cloud(CLOUD_SCHEMES[scheme], rest, options or {})
    raise Invalid(
        f"no store has the scheme {scheme!r}: {redact(location)}",
        hint=f"Use a path or one of {', '.join(f'{known}://' for known in SCHEMES)}.",
    )


def sibling(store: Store, url: str) -> Store:
    """The store at ``url``, through the client of ``store`` if that leads there."""
    if isinstance(store, PatientStore | CountedStore):
        return store.around(sibling(store.inner, url))
    if isinstance(store, PrefixedStore):
        top = store.inner.url.rstrip("/") + "/"
        place, options = _without_options(url)
        if place.startswith(top) and not options:
            return _under(store.inner, place.removeprefix(top))
    return open_store(url)


def _without_options(url: str) -> tuple[str, str]:
    """A URL without its options, and those. Elsewhere than in a bucket a name may have a ``?``."""
    if url.partition("://")[0].lower() not in CLOUD_SCHEMES:
        return url, ""
    place, _, options = url.partition("?")
    return place, options


def _refuse_misspelt_url(target: object, path: str) -> None:
    """One slash too few, and a bucket would silently become a directory here."""
    found = _MISSPELT_URL.fullmatch(path)
    if found is None:
        return
    scheme, mark, rest = found[1], found[2], redact(f"x://{found[3]}").removeprefix("x://")
    meant = f"{scheme.lower()}://{'/' if scheme.lower() == 'file' else ''}{rest}"
    raise Invalid(
        f"this path looks like a misspelt URL: {scheme}{mark}{rest}",
        hint=f"Write {meant}; for a directory of that name write ./{scheme}{mark}{rest}."
        if isinstance(target, str)
        else f"Give {meant} as text; for a directory of that name give an absolute path.",
    )


def _text_of(target: object) -> str:
    location = os.fspath(target) if isinstance(target, str | os.PathLike) else None
    if not isinstance(location, str):
        raise Invalid(
            f"a store is not named by an object of type {type(target).__name__}",
            hint="Give a path or a URL as text, a pathlib.Path, or a store.",
        )
    return location


def _directory(path: str, options: Mapping[str, str] | None) -> Store:
    _no_options(options, "directory")
    # Looking for the home of a user whose name has a zero byte is a bare ValueError.
    return DirectoryStore(path if "\0" in path else os.path.expanduser(path))


def _no_options(options: Mapping[str, str] | None, kind: str) -> None:
    if options:
        raise Invalid(
            f"a {kind} store has no options, but got {', '.join(sorted(options))}",
            hint="Leave them out.",
        )


def _cloud(scheme: str, rest: str, options: Mapping[str, str]) -> Store:
    rest, _, query = rest.partition("?")
    bucket, _, prefix = rest.partition("/")
    if ":" in bucket:
        raise secret_refused()
    if not bucket:
        raise Invalid(f"{scheme}:// needs a bucket", hint=f"Write {scheme}://bucket/prefix.")
    asked = dict(parse_qsl(query, keep_blank_values=True))
    for name in asked:
        if name not in URL_OPTIONS:
            raise Invalid(
                f"a store's URL cannot carry the option {redact(name)!r}",
                hint=f"Only {', '.join(URL_OPTIONS)}. Pass others as options or by environment.",
            )
    merged = tuple(sorted({**asked, **options}.items()))
    environment = tuple(
        sorted(item for item in os.environ.items() if item[0].startswith(_FAMILY[scheme]))
    )
    check_options_without_secret(environment)
    return _under(_shared_client(os.getpid(), scheme, bucket, merged, environment), prefix)


_FAMILY = {"s3": ("AWS_",), "gs": ("GOOGLE_",), "az": ("AZURE_", "MSI_", "IDENTITY_")}


@functools.lru_cache(maxsize=CLIENTS_MAX)
def _shared_client(
    _pid: int,
    scheme: str,
    bucket: str,
    options: tuple[tuple[str, str], ...],
    environment: tuple[tuple[str, str], ...],
) -> Store:
    """One client for everything that would configure it in the same way."""
    from stratalog.store.cloud import CloudStore

    return CloudStore(scheme, bucket, dict(options), dict(environment))


def _under(store: Store, prefix: str) -> Store:
    prefix = prefix.strip("/")
    return PrefixedStore(store, prefix) if prefix else store
