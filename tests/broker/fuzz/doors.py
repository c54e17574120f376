"""Bytes at the other doors: record batches where they are checked and decoded, and HTTP heads."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from broker.fuzz.corpus import batches
from broker.fuzz.mutation import WAYS
from stratalog.broker.http.server import requested
from stratalog.partitions import (
    DEFAULT_LIMITS,
    Batch,
    NewRecord,
    RefusedBatch,
    Undecodable,
    check_batch,
    decode_records,
    encode_batch,
)
from stratalog.partitions.batch import HEAD_BYTES, LENGTH_END, checksum
from stratalog.partitions.compression import Codec

NOW_MS = 1_700_000_000_000
SWOLLEN_BYTES_MAX = 2**20
LENGTH_AT = 8
CRC_AT = 17
RECHECKED_SHARE = 0.9
"""Most batches get their right length and checksum again, or few would get beyond them."""

HEADS = (
    b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9644\r\n\r\n",
    b"HEAD /healthz HTTP/1.0\r\n\r\n",
    b"GET /readyz?verbose=1 HTTP/1.1\r\nAccept: */*\r\nX: " + b"y" * 300 + b"\r\n\r\n",
    b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\nbody",
)


def fuzz_batches(seed: int, count: int) -> tuple[int, int]:
    """Each is refused, or decoded, or undecodable. Gives how many were taken, and decoded."""
    random = Random(seed)
    known = [*batches(), *_larger_batches()]
    taken = decoded = 0
    for _ in range(count):
        data = _mutated_batch(random, known)
        try:
            batch = check_batch(data, DEFAULT_LIMITS, NOW_MS)
        except RefusedBatch:
            continue
        taken += 1
        decoded += _is_decoded(batch)
    return taken, decoded


def _larger_batches() -> Iterator[bytes]:
    records = [
        NewRecord(b"%d" % number, b"value" * 20, NOW_MS - number, ((b"h", b"v"),))
        for number in range(100)
    ]
    for codec in Codec:
        yield bytes(encode_batch(records, codec))


def _mutated_batch(random: Random, known: list[bytes]) -> bytearray:
    data = bytearray(random.choice(known))
    kept = random.choice((0, HEAD_BYTES, HEAD_BYTES))
    rest = data[kept:]
    for _ in range(random.choice((1, 1, 2, 3))):
        rest = random.choice(WAYS)(random, rest, known)
    data = data[:kept] + rest
    if len(data) >= HEAD_BYTES and random.random() < RECHECKED_SHARE:
        data[LENGTH_AT:LENGTH_END] = (len(data) - LENGTH_END).to_bytes(4)
        data[CRC_AT : CRC_AT + 4] = checksum(data).to_bytes(4)
    return data


def _is_decoded(batch: Batch) -> bool:
    try:
        records = list(decode_records(batch, 0, SWOLLEN_BYTES_MAX))
    except Undecodable:
        return False
    assert len(records) == batch.count
    return True


def fuzz_heads(seed: int, count: int) -> int:
    """Each names a method and a path, or is malformed. Gives how many named one."""
    random = Random(seed)
    return sum(requested(each) is not None for each in mutated_heads(random, count))


def mutated_heads(random: Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        head = bytearray(random.choice(HEADS))
        for _ in range(random.choice((0, 1, 1, 2))):
            head = random.choice(WAYS)(random, head, HEADS)
        yield bytes(head)
