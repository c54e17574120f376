"""The end of a JSON object that changes by compare-and-swap: a digest of everything before it.

    {"position":{"offset":42},…,"write_id":"0b6c1de2f3a4","xxh3_of":"0b6c1de2f3a4","xxh3":"…"}

``xxh3`` is the XXH3-128 of all bytes before ``,"xxh3"``, as 32 hex digits. ``xxh3_of`` is the write
id of the version that it is of. ``close_json`` adds both, ``open_json`` checks them and takes them
away again, so nothing above knows of them.

    neither is there                     an object of format 1.0, or of wal3: as it is
    the digest is that of the bytes      good
    ``xxh3_of`` is another write id      software of 1.0 has rewritten the object. It keeps fields
                                         that it does not know, so this digest is that of an earlier
                                         version. The object counts as one of 1.0
    anything else                        ``Corrupt``

Two write ids are drawn at random and differ in many digits. So one that differs in a single digit
is taken for damage, and a flipped bit in one of them does not look like a rewrite.
"""

import re
from itertools import zip_longest

import msgspec

from stratalog.errors import Corrupt
from stratalog.hashing import digest_of

_OF = b',"xxh3_of":'
_DIGEST = re.compile(rb',"xxh3_of":"(?:[^"\\]|\\.)*"(,"xxh3":"[0-9a-f]{32}"\})')


class _Closing(msgspec.Struct):
    write_id: object = None
    xxh3_of: object = msgspec.UNSET
    xxh3: object = msgspec.UNSET


def close_json(data: bytes, write_id: str) -> bytes:
    """The bytes to put for a JSON object, which ends with its digest."""
    covered = data[:-1] + _OF + msgspec.json.encode(write_id)
    return b'%b,"xxh3":"%b"}' % (covered, digest_of(covered).encode())


def open_json(data: bytes, path: str | None) -> bytes:
    """The JSON object without its end. ``Corrupt`` if it is not what was put."""
    start = data.rfind(_OF)
    end = _DIGEST.fullmatch(data, start) if start >= 0 else None
    if end is None:
        return _without_closing(data, path)
    promised, found = end[1][9:-2].decode(), digest_of(data[: end.start(1)])
    if found != promised and not _was_rewritten(data):
        raise _damaged(path, promised, found)
    return data[:start] + b"}"


def _without_closing(data: bytes, path: str | None) -> bytes:
    """An object that does not end as it would with a digest. One half of that end is damage."""
    if b'"xxh3' in data:
        said = _closing_of(data)
        if said is not None and (said.xxh3, said.xxh3_of) != (msgspec.UNSET, msgspec.UNSET):
            raise _damaged(path, None, None)
    return data


def _was_rewritten(data: bytes) -> bool:
    said = _closing_of(data)
    if said is None or not (isinstance(said.write_id, str) and isinstance(said.xxh3_of, str)):
        return False
    differing = [a for a, b in zip_longest(said.write_id, said.xxh3_of) if a != b]
    return len(differing) > 1


def _closing_of(data: bytes) -> _Closing | None:
    """What the object says of itself, or None if it is no JSON object at all."""
    try:
        return msgspec.json.decode(data, type=_Closing)
    except (ValueError, RecursionError):
        return None


def _damaged(path: str | None, expected: str | None, actual: str | None) -> Corrupt:
    return Corrupt(
        f"{path or 'an object'} does not hold the bytes that were stored",
        path=path,
        expected=expected,
        actual=actual,
    )
