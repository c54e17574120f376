"""Payloads of any schema of ``kio``, drawn from a seed: arbitrary, and of moderate size."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import Field, fields
from datetime import timedelta
from functools import cache
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.protocol import Entity

from stratalog.broker.wire.translate import has_fields, shape_of

E = TypeVar("E", bound=Entity)
Draw = Callable[[Random], Any]

ARRAY_LENGTHS = (0, 1, 1, 2, 3)
ODD_STRINGS = ("", "a", "/", "..", "a\0b", "ä€😀", "x" * 127, "y" * 300)


def drawn_payload(schema: type[E], random: Random, names: Sequence[str] = ODD_STRINGS) -> E:
    """A payload of this schema. Its strings are some of the names."""
    payload: E = _structure(schema, tuple(names))(random)
    return payload


def written(payload: Entity) -> memoryview:
    """A payload as kio writes it."""
    out = io.BytesIO()
    entity_writer(type(payload))(out, payload)
    return memoryview(bytearray(out.getvalue()))


@cache
def _structure(schema: Any, names: tuple[str, ...]) -> Draw:
    parts = [(each.name, _of_field(each, names)) for each in fields(schema)]

    def draw(random: Random) -> Any:
        return schema(**{name: part(random) for name, part in parts})

    return draw


def _of_field(field: Field[Any], names: tuple[str, ...]) -> Draw:
    shape = shape_of(field.type)
    if has_fields(shape.inner):
        element = _structure(shape.inner, names)
    elif field.metadata["kafka_type"] == "string":
        element = lambda random: random.choice(names)  # noqa: E731
    else:
        element = PRIMITIVES[field.metadata["kafka_type"]]
    # A null in a tagged field is not written at all, so it is read back as the default.
    may_be_null = shape.is_nullable and "tag" not in field.metadata

    def draw(random: Random) -> Any:
        if may_be_null and random.random() < 0.2:
            return None
        if shape.is_array:
            return tuple(element(random) for _ in range(random.choice(ARRAY_LENGTHS)))
        return element(random)

    return draw


def _integer(bits: int) -> Draw:
    """Mostly small ones, and the ends of their range."""
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    common = (-1, 0, 0, 1, 1, 2, 3, 5, 100, low, high)

    def draw(random: Random) -> int:
        if random.random() < 0.8:
            return random.choice(common)
        return random.randint(low, high)

    return draw


def _milliseconds(bits: int) -> Draw:
    draw = _integer(bits)
    return lambda random: timedelta(milliseconds=draw(random))


PRIMITIVES: dict[str, Draw] = {
    "bool": lambda random: random.random() < 0.5,
    "bytes": lambda random: random.randbytes(random.choice((0, 1, 20, 200))),
    "error_code": lambda random: random.choice(list(ErrorCode)),
    "int8": _integer(8),
    "int16": _integer(16),
    "int32": _integer(32),
    "int64": _integer(64),
    "records": lambda random: random.randbytes(random.choice((0, 1, 20, 200))),
    "timedelta_i32": _milliseconds(32),
    "timedelta_i64": _milliseconds(44),
    "uuid": lambda random: UUID(int=random.getrandbits(128) | 1),
}
