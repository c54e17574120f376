"""The messages between source and replica of a copy.

    magic ``SLT2`` | description size u32 | CRC-32 of the description u32 | description | body

The description is MessagePack, with the kind of message in ``type``, and has a checksum. The body
is verified by checksums in the description: each payload by its head, a part of a state by the
checksum of the state up to its end. So all bytes are verified, and none is summed twice.

Version 2 knows entries with spans: version 1 would take them for larger epochs.
"""

import struct
from typing import Self

import msgspec
import numpy as np

from stratalog.errors import (
    Conflict,
    Corrupt,
    Denied,
    Full,
    Invalid,
    StratalogError,
    Unavailable,
    Unknown,
)
from stratalog.indexset import INDEX_MAX, IndexSet
from stratalog.segments.format import (
    EPOCH_MAX,
    HEAD,
    Entries,
    Lineage,
    crc32,
    cut,
    decode_set,
    encode_set,
)

_MAGIC = b"SLT2"
_FRONT = struct.Struct("<4sII")
_WHERE = "a message"


class Offer(msgspec.Struct, frozen=True, kw_only=True, tag="offer"):
    """From the source: what it has. Voids all messages before."""

    checkpoint: int
    """Its index; 0 if there is none."""
    live: IndexSet
    """The live entries at or below the checkpoint."""
    last: int
    """The source has all entries above the checkpoint, up to this one."""
    steps: tuple[tuple[int, int], ...]
    """The lineage up to ``last``."""
    state_bytes: int
    state_crc: int

    @property
    def lineage(self) -> Lineage:
        return Lineage(self.steps)

    @property
    def needed(self) -> IndexSet:
        """The entries that a replica must have in the end."""
        return self.live | IndexSet(range(self.checkpoint + 1, self.last + 1))


class Has(msgspec.Struct, frozen=True, kw_only=True, tag="has"):
    """From the replica: what it has, after cutting off what is not the source's."""

    indexes: IndexSet
    """Its entries, and all that its own checkpoint contains."""
    last: int
    """The end of its log: the next write follows it."""
    wants_state: bool
    """Whether it needs the checkpoint."""
    cut_after: int | None = None
    """The index above which it has cut off its own log."""

    def missing(self, offer: Offer) -> IndexSet:
        """The entries to be sent, all above ``last``."""
        return offer.needed - self.indexes


class Put(msgspec.Struct, frozen=True, kw_only=True, tag="put", omit_defaults=True):
    """From the source: some entries, as a write."""

    number: int
    previous: int
    heads: bytes
    body: bytes = b""

    @classmethod
    def of(cls, number: int, previous: int, entries: Entries) -> Self:
        body = b"".join(entries.parts())
        return cls(number=number, previous=previous, heads=entries.head_bytes, body=body)

    def entries(self) -> Entries:
        """``Corrupt`` if they are damaged."""
        if not self.heads or len(self.heads) % HEAD.itemsize:
            raise _damaged("it has no heads of entries")
        heads = np.frombuffer(self.heads, dtype=HEAD)
        sizes = heads["size"].astype(np.int64)
        if int(sizes.sum()) != len(self.body):
            raise _damaged("its payloads have another size than its heads say")
        indexes, epochs = heads["index"], heads["epoch"]
        if (
            not 0 <= self.previous < int(indexes[0])
            or int(indexes.max()) > INDEX_MAX
            or (indexes[1:] <= indexes[:-1] + heads["more"][:-1]).any()
            or int(indexes[-1]) + int(heads["more"][-1]) > INDEX_MAX
            or (epochs[1:] < epochs[:-1]).any()
            or not 1 <= int(epochs[0]) <= int(epochs[-1]) <= EPOCH_MAX
        ):
            raise _damaged("its entries do not follow one another")
        return Entries.checked(heads, cut(self.body, sizes), _WHERE)


class StatePart(msgspec.Struct, frozen=True, kw_only=True, tag="state", omit_defaults=True):
    """From the source: the next bytes of the checkpoint's state."""

    number: int
    start: int
    crc: int
    """CRC-32 of the state up to the end of this part."""
    body: bytes = b""


class End(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """From the source: everything offered was sent."""

    number: int


class Ack(msgspec.Struct, frozen=True, kw_only=True, tag="ack"):
    """From the replica: a message was handled.

    Of a ``Put``: its entries are durable. Of a part of the state: it was taken; of the last part:
    the checkpoint counts. Of the ``End``: the replica has everything that was offered.
    """

    number: int


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """From either side: it failed, and why."""

    kind: str
    message: str
    hint: str

    @classmethod
    def of(cls, error: StratalogError) -> Self:
        return cls(kind=error.kind, message=str(error), hint=error.hint)

    def error(self, side: str) -> StratalogError:
        """As an error at the other side: ``Unavailable`` unless it is one of these."""
        shared = (Conflict, Corrupt, Denied, Full, Invalid, Unknown)
        made = next((each for each in shared if each.kind == self.kind), Unavailable)
        return made(f"{side}: {self.message}", hint=self.hint)


Message = Offer | Has | Put | StatePart | End | Ack | Failed


def encode_message(message: Message) -> bytes:
    body = b""
    if isinstance(message, Put | StatePart):
        body, message = message.body, msgspec.structs.replace(message, body=b"")
    description = msgspec.msgpack.encode(message, enc_hook=encode_set)
    return _FRONT.pack(_MAGIC, len(description), crc32(description)) + description + body


def decode_message(data: bytes) -> Message:
    """``Corrupt`` if it is damaged, ``Invalid`` if a newer version of this library sent it."""
    if len(data) < _FRONT.size or data[:3] != _MAGIC[:3]:
        raise _damaged("it does not begin as one")
    magic, size, crc = _FRONT.unpack_from(data)
    if magic != _MAGIC:
        raise Invalid(
            f"a message of a copy is of version {magic[3:]!r}, and this one knows {_MAGIC[3:]!r}",
            hint="Use the same version of stratalog on both sides.",
        )
    description, body = data[_FRONT.size : _FRONT.size + size], data[_FRONT.size + size :]
    if crc32(description) != crc or len(description) != size:
        raise _damaged("its checksum does not match")
    try:
        message = _MESSAGES.decode(description)
        if isinstance(message, Offer):
            _check_offer(message)
        elif isinstance(message, Has):
            _check_has(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Corrupt, Invalid) as error:
        raise _damaged(str(error)) from None
    if isinstance(message, Put | StatePart):
        return msgspec.structs.replace(message, body=body)
    if body:
        raise _damaged("there is more than it describes")
    return message


def _check_offer(offer: Offer) -> None:
    """``Corrupt`` if no log fits it."""
    steps = offer.lineage.steps
    if not 0 <= offer.checkpoint <= offer.last <= INDEX_MAX:
        raise Corrupt(f"a checkpoint at {offer.checkpoint} of a log that ends at {offer.last}")
    if (offer.live.last or 0) > offer.checkpoint or offer.live.first == 0:
        raise Corrupt(f"{offer.live!r} lives at {offer.checkpoint}")
    if steps and not (
        steps[0][0] >= 1
        and steps[-1][0] <= offer.last
        and 1 <= steps[0][1] <= steps[-1][1] <= EPOCH_MAX
    ):
        raise Corrupt(f"a log that ends at {offer.last} has the lineage {steps}")
    if offer.state_bytes < 0 or (not offer.checkpoint and (offer.state_bytes or offer.state_crc)):
        raise Corrupt(f"a state of {offer.state_bytes} bytes at {offer.checkpoint}")


def _check_has(has: Has) -> None:
    """``Corrupt`` if no log fits it."""
    ends = [has.last, has.indexes.last or 0, has.cut_after or 0]
    if min(ends) < 0 or max(ends) > INDEX_MAX:
        raise Corrupt(f"a log that ends at {has.last} and was cut off after {has.cut_after}")


def _damaged(why: str) -> Corrupt:
    return Corrupt(
        f"a message of a copy is damaged: {why}",
        hint="It was changed on the way, or the other side is no stratalog. Copy again.",
    )


_MESSAGES: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message, dec_hook=decode_set)
