"""How a listing of any server becomes one in byte order, and where it may begin.

Servers list in one of two orders. Most compare whole paths byte by byte, as promised to callers.
Some walk directories, and so put ``a/b`` before ``a-b``: they compare part by part. Where no
character below the slash is involved, the two orders are the same.
"""

import heapq
from collections.abc import Iterator
from itertools import takewhile

from stratalog.errors import Unavailable
from stratalog.store.protocol import Listed


def begin_after(prefix: str, after: str) -> str:
    """A path before every wanted one in both orders, to start the server's listing from.

    It is a little smaller than it could be, so that it is nobody's name: a server that walks
    directories takes the name of one for all that is in it. Empty for the very beginning.
    """
    beginning = max(_orders_agree(after), _orders_agree(prefix))
    while beginning and not "1" <= beginning[-1] <= "~":
        beginning = beginning[:-1]
    return beginning and f"{beginning[:-1]}{chr(ord(beginning[-1]) - 1)}~"


def can_match(prefix: str) -> bool:
    """Whether there can be objects below the directories that a prefix names."""
    return not any(not part or part.startswith(".") for part in prefix.split("/")[:-1])


def is_past(path: str, prefix: str) -> bool:
    """Whether in both orders no path with this prefix can follow."""
    return path > prefix and not path.startswith(prefix) and _orders_agree(prefix) == prefix


def in_byte_order(rows: Iterator[Listed], window_rows: int) -> Iterator[Listed]:
    """Sort rows that arrive at most ``window_rows`` too late; refuse what comes later."""
    window: list[tuple[str, int]] = []
    last = ""
    for row in rows:
        if row.path < last:
            raise Unavailable(
                f"the server lists out of order: {row.path} after {last}",
                path=row.path,
                hint="Avoid a name that is another one followed by a character below the slash.",
            )
        heapq.heappush(window, (row.path, row.size))
        if len(window) > window_rows:
            last, size = heapq.heappop(window)
            yield Listed(last, size)
    for path, size in sorted(window):
        yield Listed(path, size)


def _orders_agree(path: str) -> str:
    """The longest beginning without a character that sorts below the slash."""
    return "".join(takewhile(lambda character: character >= "/", path))
