"""How the settings of a topic change: pure decisions.

``AlterConfigs`` replaces all of them; what it does not name goes back to its default.
``IncrementalAlterConfigs`` changes those that it names.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from stratalog.broker.topics.settings import InvalidSetting, Kind, normal_settings, setting


class Operation(enum.IntEnum):
    """What an incremental change does, by its number on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class InvalidChange(InvalidSetting):
    """The change itself makes no sense, whatever the setting's value."""

    kind = "invalid-change"

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.invalid_request)


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one setting."""

    name: str
    operation: int
    value: str | None = None


def replaced(given: Mapping[str, str | None]) -> dict[str, str]:
    """The settings after all of them were replaced."""
    return normal_settings(given)


def changed(
    present: Mapping[str, str], defaults: Mapping[str, str], changes: Sequence[Change]
) -> dict[str, str]:
    """The settings after incremental changes: all of them, or ``InvalidSetting`` and none."""
    names = [each.name for each in changes]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidChange(f"configuration {twice[:80]!a} is changed twice in one request")
    settings: dict[str, str | None] = dict(present)
    for each in changes:
        value = _value(present, defaults, each)
        if value is None:
            settings.pop(each.name, None)
        else:
            settings[each.name] = value
    return normal_settings(settings)


def _value(present: Mapping[str, str], defaults: Mapping[str, str], change: Change) -> str | None:
    """The new value of one setting; ``None`` for its default."""
    found = setting(change.name)
    if change.operation not in set(Operation):
        raise InvalidChange(f"unknown operation {change.operation} on configuration {change.name}")
    operation = Operation(change.operation)
    if operation is Operation.DELETE:
        return None
    if change.value is None:
        raise InvalidChange(f"null value not supported for topic configuration {change.name}")
    if operation is Operation.SET:
        return change.value
    if found.kind is not Kind.LIST:
        raise InvalidSetting(
            f"configuration {change.name} is not a list: it can be set, not added to"
        )
    now = present.get(change.name) or defaults.get(change.name) or found.default
    words = [word for word in now.split(",") if word]
    given = [word.strip() for word in change.value.split(",")]
    if operation is Operation.APPEND:
        return ",".join([*words, *(word for word in given if word not in words)])
    return ",".join(word for word in words if word not in given)
