"""Payloads of one version of an API made into those of another, field by field, by name.

What the target lacks is left out; what the source lacks has the schema's default. Each pair of
schemas is looked at once.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin
from uuid import UUID

from kio.static.protocol import Entity

T = TypeVar("T")

_ZERO: dict[type, object] = {
    bool: False,
    int: 0,
    float: 0.0,
    str: "",
    bytes: b"",
    timedelta: timedelta(0),
    UUID: UUID(int=0),
}


def translated(payload: Entity, target: type[T]) -> T:
    """The payload as the target's version has it."""
    if isinstance(payload, target):
        return payload
    schemas: tuple[Any, Any] = type(payload), target
    translate: Callable[[Entity], T] = _translation(*schemas)
    return translate(payload)


@dataclass(frozen=True, slots=True)
class Shape:
    """The type of a field of a schema."""

    inner: Any
    is_array: bool
    is_nullable: bool


def shape_of(annotation: Any) -> Shape:
    """An array or not, of what, and whether it may be null."""
    is_nullable = False
    if get_origin(annotation) in (UnionType, Union):
        is_nullable = NoneType in get_args(annotation)
        annotation = next(each for each in get_args(annotation) if each is not NoneType)
    if get_origin(annotation) is tuple:
        inner = shape_of(get_args(annotation)[0])
        return Shape(inner.inner, is_array=True, is_nullable=is_nullable)
    return Shape(annotation, is_array=False, is_nullable=is_nullable)


def has_fields(schema: Any) -> bool:
    """Whether it is a structure."""
    return is_dataclass(schema)


@cache
def _translation(source: Any, target: Any) -> Callable[[Any], Any]:
    known = {each.name: each for each in fields(source)}
    absent = {each.name: default_of(each) for each in fields(target) if each.name not in known}
    converters = [
        (each.name, _converter(known[each.name].type, each))
        for each in fields(target)
        if each.name in known
    ]

    def translate(value: Any) -> Any:
        given = dict(absent)
        for name, convert in converters:
            found = getattr(value, name)
            given[name] = found if convert is None else convert(found)
        return target(**given)

    return translate


def _converter(source: Any, field: "Field[Any]") -> Callable[[Any], Any] | None:
    """``None``: it is taken as it is."""
    shape, default = shape_of(field.type), default_of(field)
    allows_null = shape.is_nullable
    inner: Callable[[Any], Any] | None = None
    if has_fields(shape.inner):
        inner = _translation(shape_of(source).inner, shape.inner)
    elif allows_null or not shape_of(source).is_nullable:
        return None
    is_array = shape.is_array

    def convert(value: Any) -> Any:
        if value is None:
            return None if allows_null else default
        if inner is None:
            return value
        return tuple(map(inner, value)) if is_array else inner(value)

    return convert


def default_of(field: "Field[Any]") -> Any:
    """What the schema says of a field that is not there."""
    if field.default is not MISSING:
        return field.default
    shape = shape_of(field.type)
    if shape.is_array:
        return ()
    if shape.is_nullable:
        return None
    inner = shape.inner
    if has_fields(inner):
        return shape.inner(**{each.name: default_of(each) for each in fields(inner)})
    if hasattr(inner, "__members__"):
        return inner(0)
    for known in getattr(inner, "__mro__", ()):
        if known in _ZERO:
            return _ZERO[known]
    raise TypeError(f"no default is known for {field.name}: {field.type}")
