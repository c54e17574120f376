"""How what was opened in one process is opened again in another.

A URL travels as it is, and a path as an absolute one. A store travels only if it can be pickled:
most hold connections or locks.
"""

import os
import pickle

from stratalog.errors import Invalid
from stratalog.store import StoreLike


def located(url: StoreLike) -> StoreLike:
    """The same place, whatever the current directory will be."""
    if isinstance(url, os.PathLike) or (isinstance(url, str) and "://" not in url):
        return os.path.abspath(os.path.expanduser(url))
    return url


def sendable(url: StoreLike) -> StoreLike:
    """The same place, if it can be sent to another process; otherwise ``Invalid``."""
    if isinstance(url, str):
        return url
    try:
        pickle.dumps(url)
    except (pickle.PicklingError, TypeError, AttributeError, NotImplementedError):
        raise Invalid(
            f"a {type(url).__name__} cannot be pickled",
            hint="Open by URL or path, not by a store object, what you want to pickle.",
        ) from None
    return url


def unsendable(thing: object, hint: str) -> Invalid:
    """Why this cannot be pickled, and what to do instead."""
    return Invalid(f"a {type(thing).__name__} cannot be pickled", hint=hint)
