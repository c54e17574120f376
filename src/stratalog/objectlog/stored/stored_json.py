"""JSON objects whose unknown fields survive a rewrite.

A newer version, or another program, may add fields to a stored object. We must not lose them when
we change a field of our own. Decoding tries the exact shape first, which is fast; only an object
with a field that we do not know is taken apart name by name, and the strangers are kept verbatim.

Every decoder turns any bytes into a value or ``Corrupt``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Self, TypeVar, cast, get_args, get_type_hints

import msgspec

from stratalog.errors import Corrupt, Invalid
from stratalog.objectlog.stored.position import LogPosition
from stratalog.setsum import Setsum
from stratalog.store import open_json

FORMAT = "1.1"
FORMAT_MAJOR = 1

# Where the strangers are kept in memory. Never stored under this name.
_UNKNOWN = "<unknown>"


class StoredObject(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The base of all stored JSON objects and of the entries inside them."""

    what: ClassVar[str] = "object"

    unknown: Mapping[str, msgspec.Raw] | None = msgspec.field(name=_UNKNOWN, default=None)

    @classmethod
    def from_json(cls, data: bytes | str, path: str | None = None) -> Self:
        """Decode stored bytes. Anything but a well-formed object is ``Corrupt``."""
        try:
            if isinstance(data, str):
                data = data.encode()
            elif not data.isascii():
                str(data, "utf-8")
            return _decode(cls, data)
        except (ValueError, RecursionError, Invalid) as error:
            raise Corrupt(f"not a {cls.what}: {error}", path=path) from None

    def to_json(self) -> bytes:
        """The compact bytes to store, fields in the order that the format prescribes."""
        plain = self.unknown is None and not any(map(_has_unknown, self.entries))
        try:
            return _encoder.encode(self if plain else _with_unknown(self))
        except (UnicodeEncodeError, OverflowError) as error:
            raise Invalid(
                f"a {self.what} cannot be stored: {error}",
                hint='Text has whole characters: decode bytes with errors="replace", not '
                '"surrogateescape".',
            ) from None

    @property
    def entries(self) -> Sequence[StoredObject]:
        """The stored objects inside this one."""
        return ()


class AnnotatedPosition(LogPosition, frozen=True, omit_defaults=True, gc=False, order=True):
    """A position that came with fields we do not know."""

    unknown: Mapping[str, msgspec.Raw] | None = msgspec.field(name=_UNKNOWN, default=None)


Shape = TypeVar("Shape", bound=msgspec.Struct)
Stored = TypeVar("Stored", bound=StoredObject)


class _Formatted(msgspec.Struct):
    format: object = None


def decode_document(kind: type[Stored], data: bytes, path: str | None = None) -> Stored:
    """Decode an object that changes by compare-and-swap, once its bytes are what was put.

    One of a newer format is ``Invalid``, before it is misread.
    """
    data = open_json(data, path)
    return decode_opened(kind, data, path)


def decode_opened(kind: type[Stored], data: bytes, path: str | None = None) -> Stored:
    """The same of bytes that were checked before, or that have no digest."""
    try:
        version = msgspec.json.decode(data, type=_Formatted).format
    except (ValueError, RecursionError):
        version = None
    check_format(version)
    return kind.from_json(data, path)


def check_format(version: object) -> None:
    """Refuse a newer major version: it may mean something else by the same names."""
    major = version.partition(".")[0] if isinstance(version, str) else ""
    if major.isdecimal() and (len(major) > 9 or int(major) > FORMAT_MAJOR):
        raise Invalid(
            f"the log has format {version}, this version reads up to {FORMAT_MAJOR}.x",
            hint="Upgrade stratalog.",
            expected=FORMAT_MAJOR,
            actual=version,
        )


def _encode_setsum(value: object) -> str:
    if isinstance(value, Setsum):
        return value.hexdigest()
    raise NotImplementedError(f"{type(value)} has no JSON form")


def _decode_setsum(kind: type, value: object) -> object:
    if kind is Setsum and isinstance(value, str):
        return Setsum.from_hexdigest(value)
    raise ValueError(f"expected a setsum, not {value!r:.80}")


_encoder = msgspec.json.Encoder(enc_hook=_encode_setsum)
_decoders: dict[object, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: object) -> msgspec.json.Decoder[Any]:
    if kind not in _decoders:
        _decoders[kind] = msgspec.json.Decoder(cast(type, kind), dec_hook=_decode_setsum)
    return _decoders[kind]


def _decode(cls: type[Shape], data: bytes) -> Shape:
    if _UNKNOWN.encode() not in data and b"\\u" not in data:
        try:
            return cast(Shape, _decoder(cls).decode(data))
        except msgspec.ValidationError:
            pass
    return _decode_by_name(cls, msgspec.Raw(data))


@cache
def _shape(cls: type) -> tuple[dict[str, msgspec.structs.FieldInfo], dict[str, object]]:
    """The fields of a stored object by their stored name, and their types."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(cls)}
    return fields, get_type_hints(cls, include_extras=True)


def _decode_by_name(cls: type[Shape], raw: msgspec.Raw) -> Shape:
    known, hints = _shape(cls)
    values: dict[str, object] = {}
    unknown: dict[str, msgspec.Raw] = {}
    for name, part in _decoder(dict[str, msgspec.Raw]).decode(raw).items():
        field = known.get(name)
        if field is None or field.name == "unknown":
            unknown[name] = part.copy()
        else:
            values[field.name] = _decode_value(hints[field.name], part)
    missing = [name for name, field in known.items() if field.required and field.name not in values]
    if missing:
        raise ValueError(f"missing fields: {', '.join(missing)}")
    if cls is LogPosition and unknown:
        return cast(Shape, AnnotatedPosition(**cast(Any, values), unknown=unknown))
    if unknown or any(isinstance(value, AnnotatedPosition) for value in values.values()):
        values["unknown"] = unknown
    return cls(**cast(Any, values))


def _decode_value(kind: object, raw: msgspec.Raw) -> object:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _decode_by_name(kind, raw)
    members = [part for part in get_args(kind) if isinstance(part, type)]
    structs = [part for part in members if issubclass(part, msgspec.Struct)]
    if not structs:
        return _decoder(kind).decode(raw)
    if getattr(kind, "__origin__", None) is tuple:
        parts = _decoder(list[msgspec.Raw]).decode(raw)
        return tuple(_decode(structs[0], bytes(part)) for part in parts)
    if type(None) in members and bytes(raw) == b"null":
        return None
    return _decode_by_name(structs[0], raw)


def _has_unknown(value: object) -> bool:
    """Whether a part, or a part of it, came with fields we do not know."""
    if not isinstance(value, StoredObject):
        return False
    return value.unknown is not None or any(map(_has_unknown, value.entries))


def _with_unknown(value: msgspec.Struct) -> dict[str, object]:
    plain: dict[str, object] = {}
    for field in _shape(type(value))[0].values():
        part = getattr(value, field.name)
        if field.name == "unknown" or part is msgspec.UNSET:
            continue
        if not field.required and part == field.default:
            continue
        if isinstance(part, tuple):
            plain[field.encode_name] = [
                _with_unknown(each) if _has_unknown(each) else each for each in part
            ]
        elif isinstance(part, msgspec.Struct):
            plain[field.encode_name] = _with_unknown(part)
        else:
            plain[field.encode_name] = part
    plain.update(getattr(value, "unknown", None) or {})
    return plain
