"""A checkpoint file: a state, the entries below it that still live, and the lineage up to it.

Persisted: keep stable. The head's kind is ``CKP1``, its ``number`` the partition's, its ``first``
the checkpoint's index.

    head 64 | description size u32 | CRC-32 of the description u32 | description (JSON)
    | live set (binary form of an ``IndexSet``, with a checksum of its own) | state

The live set comes before the state and is repeated in a file of its own, so that opening a node
reads no state. That file is a cache, rewritten from the checkpoint when it is missing or damaged.
"""

from dataclasses import dataclass

import msgspec

from stratalog.errors import Corrupt
from stratalog.indexset import IndexSet
from stratalog.segments.format.checksum import crc32
from stratalog.segments.format.frame import HEAD_BYTES, Head
from stratalog.segments.format.lineage import Lineage
from stratalog.segments.io import File

KIND = b"CKP1"


class _Description(msgspec.Struct, frozen=True):
    index: int
    lineage: tuple[tuple[int, int], ...]
    live_bytes: int
    state_bytes: int
    state_crc: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint without its state."""

    index: int
    live: IndexSet
    lineage: Lineage
    state_bytes: int
    state_crc: int
    state_at: int = 0
    """Where in the file the state begins, once that is known."""

    @property
    def epoch(self) -> int:
        return self.lineage.epoch_of(self.index)


def checkpoint_path(partition: int, index: int, nonce: str) -> str:
    return f"ckpt/{partition:08}.{index:016}.{nonce}.ckpt"


def live_path(path: str) -> str:
    """The path of the cache with the live set of a checkpoint."""
    return path.removesuffix(".ckpt") + ".live"


def checkpoint_front(disk: bytes, nonce: bytes, partition: int, checkpoint: Checkpoint) -> bytes:
    """The bytes of the file before the state."""
    live = checkpoint.live.to_bytes()
    steps, size = checkpoint.lineage.steps, checkpoint.state_bytes
    described = _Description(checkpoint.index, steps, len(live), size, checkpoint.state_crc)
    description = msgspec.json.encode(described)
    sizes = len(description).to_bytes(4, "little") + crc32(description).to_bytes(4, "little")
    head = Head(KIND, disk, nonce, partition, checkpoint.index).to_bytes()
    return head + sizes + description + live


def read_checkpoint(
    file: File, disk: bytes, partition: int, path: str, live: IndexSet | None = None
) -> Checkpoint:
    """Read a checkpoint without its state, and without its live set if that is given.

    ``Corrupt`` if it is damaged or belongs to another partition.
    """
    head = Head.from_bytes(file.read_at(0, HEAD_BYTES), path).must_be(KIND, disk, path)
    sizes = file.read_at(HEAD_BYTES, 8)
    size = int.from_bytes(sizes[:4], "little")
    if head.number != partition or len(sizes) < 8 or size > file.size():
        raise Corrupt(f"{path} is not a checkpoint of partition {partition}", path=path)
    data = file.read_at(HEAD_BYTES + 8, size)
    if crc32(data) != int.from_bytes(sizes[4:], "little"):
        raise Corrupt(
            f"{path} is damaged: the checksum of its description does not match", path=path
        )
    try:
        found = msgspec.json.decode(data, type=_Description)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"{path} is damaged: {error}", path=path) from None
    live_at = HEAD_BYTES + 8 + size
    state_at = live_at + found.live_bytes
    if file.size() != state_at + found.state_bytes:
        raise Corrupt(f"{path} is truncated, or has surplus bytes", path=path)
    try:
        if live is None:
            live = IndexSet.from_bytes(file.read_at(live_at, found.live_bytes))
        lineage = Lineage(found.lineage)
    except Corrupt as error:
        raise Corrupt(f"{path} is damaged: {error}", path=path) from None
    return Checkpoint(found.index, live, lineage, found.state_bytes, found.state_crc, state_at)


def read_state(file: File, checkpoint: Checkpoint, path: str) -> bytes:
    """Read and verify the state. ``Corrupt`` if it is damaged."""
    state = file.read_at(checkpoint.state_at, checkpoint.state_bytes)
    if len(state) != checkpoint.state_bytes or crc32(state) != checkpoint.state_crc:
        raise Corrupt(
            f"the state in {path} is damaged: its checksum does not match",
            hint="Keep the file. Restore the partition from another replica.",
            path=path,
        )
    return state
