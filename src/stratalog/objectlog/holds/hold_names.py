"""The names of cursors and pins, and where they are stored: ``{prefix}{name}.json``."""

import re

from stratalog.errors import Invalid

SUFFIX = ".json"
_NAME = re.compile(r"[A-Za-z0-9_]+")
_NAME_LENGTH_MAX = 200


def legal_name(name: object) -> bool:
    """Whether this may be the name of a cursor or of a pin."""
    if not isinstance(name, str) or len(name) > _NAME_LENGTH_MAX:
        return False
    return _NAME.fullmatch(name) is not None


def path_of(prefix: str, name: str, what: str) -> str:
    """Where the hold of this name is stored. ``Invalid`` for a name that is not one."""
    if not legal_name(name):
        raise Invalid(
            f"not a {what} name: {name!r}",
            hint=f"Use letters, digits and underscores, at most {_NAME_LENGTH_MAX}.",
        )
    return f"{prefix}{name}{SUFFIX}"


def name_in(prefix: str, path: str) -> str | None:
    """The name that a path tells, or None if no hold is stored there."""
    name = path.removeprefix(prefix).removesuffix(SUFFIX)
    return name if legal_name(name) and path == f"{prefix}{name}{SUFFIX}" else None
