"""What logs and servers of a herd may be called, and where their objects lie.

    catalogue/{name}.json            name to id
    servers/{server}.json            who may have marks
    dirty/{server}/{first,second}    the marks of a server
    logs/{id}                        the logs

Persisted: keep stable.
"""

import re
from collections.abc import AsyncIterator

from stratalog.errors import Invalid
from stratalog.store import PrefixedStore, Store

NAME_LENGTH_MAX = 128
ID_BYTES = 16
CATALOGUE_PREFIX = "catalogue/"
SERVERS_PREFIX = "servers/"
SUFFIX = ".json"
SIDES = ("first", "second")
"""A server has two dirty logs: if one does not take a mark, the other does."""

_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def is_name(text: str) -> bool:
    """Whether a log or a server may be called this."""
    return len(text) <= NAME_LENGTH_MAX and _name.fullmatch(text) is not None


def check_name(name: str, what: str) -> str:
    """The name, or ``Invalid``."""
    text: object = name
    if not isinstance(text, str) or not is_name(name):
        raise Invalid(
            f"not a name of a {what}: {name!r}",
            hint=f"A letter or digit, then letters, digits, '.', '_' or '-'; at most "
            f"{NAME_LENGTH_MAX} in all.",
        )
    return name


def entry_path(name: str) -> str:
    return f"{CATALOGUE_PREFIX}{check_name(name, 'log')}{SUFFIX}"


def server_path(server: str) -> str:
    return f"{SERVERS_PREFIX}{check_name(server, 'server')}{SUFFIX}"


async def names_below(root: Store, prefix: str) -> AsyncIterator[str]:
    """The names of what lies below a prefix, in order. What is none of ours is passed over."""
    async for row in root.list(prefix):
        name = row.path.removeprefix(prefix).removesuffix(SUFFIX)
        if row.path == f"{prefix}{name}{SUFFIX}" and is_name(name):
            yield name


def log_store(root: Store, log_id: str) -> Store:
    return PrefixedStore(root, f"logs/{log_id}")


def dirty_store(root: Store, server: str, side: str) -> Store:
    return PrefixedStore(root, f"dirty/{check_name(server, 'server')}/{side}")
