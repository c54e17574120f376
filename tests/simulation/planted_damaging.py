"""Bugs on purpose in digests, each in one named way, from outside.

The checks are only worth something if they notice these. Nothing here is shipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from simulation.planting import plant
from stratalog.hashing import digest_of
from stratalog.objectlog.stored import fragment as fragment_module
from stratalog.objectlog.stored import snapshot as snapshot_module
from stratalog.objectlog.stored import stored_json as stored_json_module
from stratalog.objectlog.tree import walk as walk_module
from stratalog.store import document as document_module
from stratalog.store.closing import close_json


@contextmanager
def digest_of_a_fragment_not_checked() -> Iterator[None]:
    """A reader finds a digest and believes the bytes."""
    with plant(fragment_module, "check_bytes", lambda _data, entry: entry.xxh3 is not None):
        yield


@contextmanager
def digest_of_a_node_not_checked() -> Iterator[None]:
    """Its sums and ranges are checked, its times and sizes are not."""
    with plant(walk_module, "check_bytes", lambda _data, _entry: False):
        yield


@contextmanager
def end_of_a_document_not_checked() -> Iterator[None]:
    """It is cut off and not looked at."""

    def cut_off(data: bytes, _path: str | None) -> bytes:
        start = data.rfind(b',"xxh3_of":')
        return data if start < 0 or not data.endswith(b'"}') else data[:start] + b"}"

    with plant(stored_json_module, "open_json", cut_off):
        yield


@contextmanager
def digest_of_other_bytes_of_a_fragment() -> Iterator[None]:
    """It is computed before the last byte is there."""
    with plant(fragment_module, "digest_of", lambda data: digest_of(data[:-1])):
        yield


@contextmanager
def digest_of_other_bytes_of_a_node() -> Iterator[None]:
    """It is that of the node spread out, and not of what is put."""
    with plant(snapshot_module, "digest_of", lambda data: digest_of(data.replace(b",", b", "))):
        yield


@contextmanager
def document_closed_with_an_older_digest() -> Iterator[None]:
    """The end that the version before had, under the new write id."""
    ends: dict[str, bytes] = {}

    def with_the_first(data: bytes, write_id: str) -> bytes:
        closed = close_json(data, write_id)
        end = ends.setdefault("first", closed[-34:])
        return closed[:-34] + end

    with plant(document_module, "close_json", with_the_first):
        yield


PLANTED = (
    digest_of_a_fragment_not_checked,
    digest_of_a_node_not_checked,
    end_of_a_document_not_checked,
    digest_of_other_bytes_of_a_fragment,
    digest_of_other_bytes_of_a_node,
    document_closed_with_an_older_digest,
)
