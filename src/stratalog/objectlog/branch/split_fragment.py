"""Some records of a fragment as a fragment of their own: what a fork or a copy divides.

All other fragments are shared or copied byte for byte. These rows are encoded anew with the offsets
and the time that they have, so the hash of each stays the same. The new sum is compared with the
sum of the rows that it was made from.
"""

import msgspec

from stratalog.errors import Invalid
from stratalog.objectlog.stored import (
    EncodedFragment,
    Fragment,
    LogPosition,
    decode_fragment,
    encode_fragment,
    sum_of_records,
)
from stratalog.objectlog.tree import Window, survivors_of


def encode_part(
    data: bytes, entry: Fragment, from_offset: int, to_offset: int
) -> tuple[EncodedFragment, Fragment]:
    """The records of a stored fragment from one offset up to, not including, another one.

    Gives their entry too, which has the times and numbers of the whole, and its path.
    """
    if entry.is_sparse:
        part = survivors_of(data, entry).within(Window(from_offset, to_offset))
        encoded = part.encode()
    else:
        part, encoded = None, _encode_dense(data, entry, from_offset, to_offset)
    return encoded, msgspec.structs.replace(
        entry,
        start=LogPosition(from_offset, entry.start.timestamp_us),
        limit=LogPosition(to_offset, entry.limit.timestamp_us),
        num_bytes=len(encoded.data),
        setsum=encoded.setsum,
        rows=None if part is None else len(part),
        base=None,
    )


def _encode_dense(
    data: bytes, entry: Fragment, from_offset: int, to_offset: int
) -> EncodedFragment:
    rows = decode_fragment(data, entry).slice(
        from_offset - entry.start.offset, to_offset - from_offset
    )
    offsets, times_us, bodies = rows.columns
    encoded = encode_fragment(from_offset, times_us[0].as_py(), bodies.to_pylist())
    if encoded.setsum != sum_of_records(offsets.to_numpy(), times_us.to_numpy(), bodies):
        raise Invalid(
            f"{entry.path} holds records of several times and cannot be divided",
            hint=f"Choose offset {entry.start.offset} or {entry.limit.offset} instead.",
            path=entry.path,
        )
    return encoded
