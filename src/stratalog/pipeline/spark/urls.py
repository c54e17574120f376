"""Where a log is, in words that mean the same to every process of a Spark job."""

import os

from stratalog.errors import Invalid
from stratalog.store import CLOUD_SCHEMES, open_store


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
    scheme, mark, _ = url.partition("://")
    return bool(mark) and scheme.lower() in CLOUD_SCHEMES


def without_options(url: str) -> tuple[str, str]:
    """A URL without its options, and those. Elsewhere than in a bucket a name may have a ``?``."""
    if not is_cloud(url):
        return url, ""
    place, mark, options = url.partition("?")
    return place, mark + options


def check_reachable(url: str) -> str:
    """Refuse a place that no other process can see."""
    if url.partition("://")[0] == "memory":
        raise Invalid(
            "Spark's workers are other processes and cannot see a log in memory",
            hint="Use a directory or a bucket.",
        )
    return url
