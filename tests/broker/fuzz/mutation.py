"""Frames made wrong, from a seed: in their bytes, their counts and lengths, their kind."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random

from broker.fuzz.corpus import arbitrary_request
from broker.plugged import framed

Mutation = Callable[[Random, bytearray, Sequence[bytes]], bytearray]

EXTREMES = (-(2**63), -(2**31), -(2**15), -2, -1, 0, 1, 127, 2**15 - 1, 2**16, 2**24, 2**31 - 1)
LENGTHS = (-(2**31), -1, 0, 1, 7, 2**16, 2**24, 100 * 2**20, 100 * 2**20 + 1, 2**31 - 1)
FLIPS_MAX = 8
MUTATIONS = (1, 1, 1, 2, 3)
HEADER_BYTES = 14
"""Of the requests of the corpus. Most frames keep it, or few would get beyond it."""
HEADER_KEPT_SHARE = 0.85
RENAMED_SHARE = 0.05
RANDOM_BYTES_MAX = 300
WRONG_LENGTH_SHARE = 0.03
UNCHANGED_SHARE = 0.3
FRESH_SHARE = 0.2


def mutated(random: Random, corpus: Sequence[bytes]) -> bytes:
    """The next frame: one of the corpus, mutated up to three times, with its length in front."""
    is_fresh = random.random() < FRESH_SHARE
    body = bytearray(arbitrary_request(random) if is_fresh else random.choice(corpus))
    if random.random() >= UNCHANGED_SHARE:
        kept = HEADER_BYTES if random.random() < HEADER_KEPT_SHARE else 0
        head, rest = body[:kept], body[kept:]
        for _ in range(random.choice(MUTATIONS)):
            rest = random.choice(WAYS)(random, rest, corpus)
        body = head + rest
        if random.random() < RENAMED_SHARE:
            rename(random, body)
    if random.random() < WRONG_LENGTH_SHARE:
        length = random.choice((*LENGTHS, len(body) - 1, len(body) + 1))
        return struct.pack(">i", length) + body
    return framed(bytes(body))


def flip(random: Random, body: bytearray, _: Sequence[bytes]) -> bytearray:
    """Some bits."""
    for _bit in range(random.randint(1, FLIPS_MAX)):
        if body:
            body[random.randrange(len(body))] ^= 1 << random.randrange(8)
    return body


def cut(random: Random, body: bytearray, _: Sequence[bytes]) -> bytearray:
    """Anywhere."""
    return body[: random.randint(0, len(body))]


def overwrite(random: Random, body: bytearray, _: Sequence[bytes]) -> bytearray:
    """A number somewhere by an extreme one, of any width."""
    layout, bits = random.choice(((">b", 8), (">h", 16), (">i", 32), (">q", 64)))
    limit = 1 << (bits - 1)
    value = (random.choice(EXTREMES) + limit) % (2 * limit) - limit
    size = bits // 8
    if len(body) >= size:
        struct.pack_into(layout, body, random.randint(0, len(body) - size), value)
    return body


def overwrite_varint(random: Random, body: bytearray, _: Sequence[bytes]) -> bytearray:
    """With a varint that is huge, or does not end."""
    varint = random.choice((b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff", b"\x80" * 9))
    at = random.randint(0, len(body))
    body[at : at + random.choice((1, len(varint)))] = varint
    return body


def splice(random: Random, body: bytearray, corpus: Sequence[bytes]) -> bytearray:
    """The beginning of one request and the end of another."""
    other = random.choice(corpus)
    return body[: random.randint(0, len(body))] + other[random.randint(0, len(other)) :]


def repeat(random: Random, body: bytearray, _: Sequence[bytes]) -> bytearray:
    """A part of it once more."""
    start = random.randint(0, len(body))
    end = random.randint(start, len(body))
    at = random.randint(0, len(body))
    return body[:at] + body[start:end] + body[at:]


def leave_out(random: Random, body: bytearray, _: Sequence[bytes]) -> bytearray:
    """A part of it."""
    start = random.randint(0, len(body))
    del body[start : random.randint(start, len(body))]
    return body


def rename(random: Random, body: bytearray) -> None:
    """To another API, or another version of it."""
    if len(body) >= 4:
        key, version = struct.unpack_from(">hh", body)
        if random.random() < 0.5:
            key = random.choice((random.randint(0, 80), random.choice(EXTREMES[2:9])))
        else:
            version = random.choice((random.randint(0, 15), random.choice(EXTREMES[2:9])))
        struct.pack_into(">hh", body, 0, key, version)


def anything(random: Random, body: bytearray, _: Sequence[bytes]) -> bytearray:
    """Random bytes, behind the right beginning or from the start."""
    return body[: random.choice((0, 4, 10))] + random.randbytes(random.randint(0, RANDOM_BYTES_MAX))


WAYS: tuple[Mutation, ...] = (
    *(flip, flip, flip, cut, overwrite, overwrite, overwrite, overwrite_varint),
    *(splice, repeat, leave_out, anything),
)
