"""The bytes of a certificate of an erasure, which end in one of two ways.

While the erasure goes on it is a document like the others and ends with its digest. Once it is done
it carries ``sha3_256``, the hash of everything else that it says, so that people can keep it apart
from the log. Nothing is added to that: software of 1.0 would take a field that it does not know for
a change of what was certified.
"""

import hashlib

import msgspec

from stratalog.errors import Corrupt
from stratalog.store import open_json

_HASH = "sha3_256"


class _State(msgspec.Struct):
    state: object = None
    sha3_256: object = None


_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def open_certificate(data: bytes, path: str | None) -> bytes:
    """The JSON of a stored certificate. ``Corrupt`` if it is not what was put."""
    try:
        said = msgspec.json.decode(data, type=_State)
        if said.state != "done" and said.sha3_256 is None:
            return open_json(data, path)
        parts = dict(_decode(data))
        found = _hash_of({name: part for name, part in parts.items() if name != _HASH})
        stated = bytes(parts.get(_HASH, b"null")).decode()
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"not a certificate of an erasure: {error}", path=path) from None
    if stated != f'"{found}"' or _joined(parts) != data:
        raise Corrupt(
            f"{path or 'a certificate'} says something else than when it was written",
            path=path,
            expected=stated,
            actual=found,
        )
    return data


def _hash_of(parts: dict[str, msgspec.Raw]) -> str:
    return hashlib.sha3_256(_joined(parts)).hexdigest()


def _joined(parts: dict[str, msgspec.Raw]) -> bytes:
    """The compact object with these parts, as every version of it was stored."""
    return msgspec.json.encode(parts)
