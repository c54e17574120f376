"""Payloads that are not on the hot path, by the schemas of ``kio``.

They are written by ``kio``, and read here: its own reader ends the process when an array claims a
huge number of elements, and these bytes come from anybody.

Importing a version of a schema takes 3 to 5 ms, so it is done when a client first speaks it.
"""

import struct
from collections.abc import Callable
from dataclasses import Field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from io import BytesIO
from typing import Any, Final, TypeVar
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.protocol import Entity, RequestPayload, ResponsePayload

from stratalog.broker.wire.primitives import Malformed, Reader
from stratalog.broker.wire.translate import default_of, has_fields, shape_of, translated

E = TypeVar("E", bound=Entity)
Read = Callable[[Reader], Any]

_HEAD: Final = struct.Struct(">ii")
_API_VERSIONS: Final = 18
_NO_UUID: Final = bytes(16)


def read_request(
    key: int, version: int, data: memoryview, at: int, wanted: type[RequestPayload]
) -> RequestPayload:
    """The request after its header, as the wanted version of its schema has it."""
    return translated(read_payload(_request_schema(key, version), data, at), wanted)


def read_payload(schema: type[E], data: memoryview, at: int = 0) -> E:
    """One payload that fills the rest of this memory. ``Malformed`` if these bytes are none."""
    reader = Reader(data, at, flexible=schema.__flexible__)
    try:
        payload: E = _decoder(schema)(reader)
    except (OSError, OverflowError, ValueError) as error:
        raise Malformed(f"{schema.__name__} cannot have this value: {error}") from error
    return payload


def answer_frame(correlation_id: int, version: int, answer: ResponsePayload) -> bytes:
    """The whole frame of an answer, in any version of its API."""
    key = int(answer.__api_key__)
    schema = _response_schema(key, version)
    out = BytesIO()
    entity_writer(schema)(out, translated(answer, schema))
    tags = b"\0" if schema.__flexible__ and key != _API_VERSIONS else b""
    body = out.getvalue()
    return _HEAD.pack(4 + len(tags) + len(body), correlation_id) + tags + body


def is_flexible(key: int, version: int) -> bool:
    """Whether a request of this version has tagged fields, in its header too."""
    return _request_schema(key, version).__flexible__


@cache
def _request_schema(key: int, version: int) -> type[RequestPayload]:
    return load_request_schema(key, version)


@cache
def _response_schema(key: int, version: int) -> type[ResponsePayload]:
    return load_response_schema(key, version)


@cache
def _decoder(schema: type[Entity]) -> Read:
    """Reads one structure, tagged fields included."""
    plain: list[tuple[str, Read]] = []
    tagged: dict[int, tuple[str, Read]] = {}
    absent: dict[str, object] = {}
    for field in fields(schema):
        tag = field.metadata.get("tag")
        if tag is None:
            plain.append((field.name, _field_reader(field)))
        else:
            tagged[tag] = field.name, _field_reader(field, is_tagged=True)
            absent[field.name] = default_of(field)

    def read(reader: Reader) -> Any:
        values = {name: read_field(reader) for name, read_field in plain}
        if reader.flexible:
            values |= absent
            for _ in range(reader.tag_count()):
                known = tagged.get(reader.varint())
                after = reader.varint() + reader.at
                if known is None:
                    reader.bytes_of(after - reader.at)
                    continue
                values[known[0]] = known[1](reader)
                if reader.at != after:
                    raise Malformed("a tagged field has another size than it says")
        return schema(**values)

    return read


def _field_reader(field: "Field[Any]", *, is_tagged: bool = False) -> Read:
    shape = shape_of(field.type)
    may_be_null = shape.is_nullable and not is_tagged
    if has_fields(shape.inner):
        element = _decoder(shape.inner)
        if shape.is_nullable and not shape.is_array:
            return _nullable_structure(element)
    else:
        kafka_type = field.metadata["kafka_type"]
        nullable = may_be_null and not shape.is_array
        element = (_NULLABLE if nullable else _PRIMITIVES).get(kafka_type) or _PRIMITIVES[
            kafka_type
        ]
    return _array(element, may_be_null=may_be_null) if shape.is_array else element


def _array(element: Read, *, may_be_null: bool) -> Read:
    def read(reader: Reader) -> Any:
        count = reader.nullable_count() if may_be_null else reader.count()
        return None if count < 0 else tuple([element(reader) for _ in range(count)])

    return read


def _nullable_structure(element: Read) -> Read:
    def read(reader: Reader) -> Any:
        return element(reader) if reader.int8() >= 0 else None

    return read


def _uuid(reader: Reader) -> UUID | None:
    raw = bytes(reader.bytes_of(16))
    return None if raw == _NO_UUID else UUID(bytes=raw)


def _bytes(reader: Reader) -> bytes:
    value = _nullable_bytes(reader)
    if value is None:
        raise Malformed("bytes are null that may not be")
    return value


def _nullable_bytes(reader: Reader) -> bytes | None:
    found = reader.nullable_records()
    return None if found is None else bytes(found)


def _milliseconds(read: Callable[[Reader], int]) -> Read:
    return lambda reader: timedelta(milliseconds=read(reader))


def _moment(reader: Reader) -> datetime:
    return datetime.fromtimestamp(reader.int64() / 1000, UTC)


def _nullable_moment(reader: Reader) -> datetime | None:
    milliseconds = reader.int64()
    return None if milliseconds == -1 else datetime.fromtimestamp(milliseconds / 1000, UTC)


_PRIMITIVES: Final[dict[str, Read]] = {
    "bool": Reader.boolean,
    "bytes": _bytes,
    "datetime_i64": _moment,
    "error_code": lambda reader: ErrorCode(reader.int16()),
    "float64": Reader.float64,
    "int16": Reader.int16,
    "int32": Reader.int32,
    "int64": Reader.int64,
    "int8": Reader.int8,
    "records": _bytes,
    "string": Reader.string,
    "timedelta_i32": _milliseconds(Reader.int32),
    "timedelta_i64": _milliseconds(Reader.int64),
    "uint16": Reader.uint16,
    "uuid": _uuid,
}
_NULLABLE: Final[dict[str, Read]] = {
    "bytes": _nullable_bytes,
    "datetime_i64": _nullable_moment,
    "records": _nullable_bytes,
    "string": Reader.nullable_string,
}
