"""Where a log is, in words that mean the same to every process of a Spark job."""

from __future__ import annotations

import os

from stratalog.pipeline.planning import check_reachable
from stratalog.store import open_store
from stratalog.store.locate import CLOUD_SCHEMES


def absolute_url(url: str | os.PathLike[str]) -> str:
    """The same place, whatever the current directory of a task is.

    ``Invalid`` for what names no place, or one that other processes cannot see.
    """
    place = check_reachable(open_store(url).url)
    return url if isinstance(url, str) and is_cloud(url) else place


def below(url: str, path: str) -> str:
    """A place inside of another one, reached with the same options."""
    place, options = without_options(url)
    return f"{place.rstrip('/')}/{path}{options}"


def is_cloud(url: str) -> bool:
    """Whether the place is in a bucket."""
    scheme, mark, _ = url.partition("://")
    return bool(mark) and scheme.lower() in CLOUD_SCHEMES


def without_options(url: str) -> tuple[str, str]:
    """A URL without its options, and those. Elsewhere than in a bucket a name may have a ``?``."""
    if not is_cloud(url):
        return url, ""
    place, mark, options = url.partition("?")
    return place, mark + options
