"""Where the options of a broker come from, and which of them wins.

    the command line     --request-bytes-max 1000000
    the environment      STRATALOG_REQUEST_BYTES_MAX=1000000
    the file, in TOML    request_bytes_max = 1000000
    the default

What stands above wins. An option has one name everywhere. A key of the file that is no option is
refused, with the option that it was probably meant to be. A variable of the environment is not,
because others set some too: Kubernetes makes `STRATALOG_SERVICE_HOST` for a service of that name.
One that is nearly an option is reported as a warning.

`none` stands for no value where an option may have none, as in `http = "none"`.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from ipaddress import ip_address
from pathlib import Path
from types import NoneType, UnionType
from typing import Literal, get_args, get_origin, get_type_hints

from stratalog.broker.options import Address, BrokerOptions
from stratalog.errors import Denied, Invalid, NotFound

PREFIX = "STRATALOG_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

Value = str | int | bool | Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    """How the process of a broker says what happens."""

    log_format: LogFormat = "text"
    log_level: LogLevel = "info"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The options of a broker and of its process, and what should be said about their sources."""

    options: BrokerOptions
    logging: Logging
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Given:
    """A value as it was given, and where, as an error names it."""

    value: object
    source: str


def names() -> tuple[str, ...]:
    """The names of all options, as a file has them."""
    return tuple(_kinds())


def configure(
    given: Mapping[str, object], environment: Mapping[str, str], file: Path | None = None
) -> Configuration:
    """Put the options together. ``given`` is the command line; None there means not given."""
    path = file or _path(environment.get(CONFIG_VARIABLE))
    collected: dict[str, _Given] = {}
    if path is not None:
        collected.update(_of_file(path))
    collected.update(_of_environment(environment))
    collected.update(
        {
            name: _Given(value, f"--{name.replace('_', '-')}")
            for name, value in given.items()
            if value is not None
        }
    )
    kinds = _kinds()
    values = {name: _converted(each, kinds[name]) for name, each in collected.items()}
    if "data" not in values:
        raise Invalid(
            "no data directory is named",
            hint="Name it with --data DIR, STRATALOG_DATA, or `data` in the file of --config.",
        )
    of_process = {name: values.pop(name) for name in _names_of(Logging) if name in values}
    options = BrokerOptions(**values)  # type: ignore[arg-type]
    return Configuration(
        options=options,
        logging=Logging(**of_process),  # type: ignore[arg-type]
        warnings=(*_misspelt(environment), *exposure(options)),
    )


def exposure(options: BrokerOptions) -> tuple[str, ...]:
    """What to say about a broker that is reached from other machines. It must have been asked for,
    and clients must be told an address that is one."""
    listen = Address.parse(options.listen)
    if options.advertise is None and _is_anywhere(listen.host):
        raise Invalid(
            f"clients cannot be told to connect to {listen}, which stands for every address here",
            hint="Say what they can reach: --advertise HOST:PORT.",
        )
    said = []
    if not _is_loopback(listen.host):
        said.append(
            f"Kafka clients may connect at {listen}: there is no authentication and no encryption, "
            "so whoever reaches it may read, write and delete everything"
        )
    if options.http is not None and not _is_loopback(Address.parse(options.http).host):
        said.append(f"metrics and health are shown to whoever reaches {options.http}")
    return tuple(said)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_anywhere(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def _of_file(path: Path) -> dict[str, _Given]:
    found = _parsed(path)
    kinds = _kinds()
    for key in found:
        if key not in kinds:
            raise Invalid(f"{path}: there is no option {key!r}", hint=_suggestion(key, path))
    return {name: _Given(value, f"{path}: {name}") for name, value in found.items()}


def _parsed(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFound(
            f"there is no file {path}", hint="Check the name that --config gives.", path=str(path)
        ) from None
    except PermissionError:
        raise Denied(
            f"the file {path} may not be read", hint="Check its permissions.", path=str(path)
        ) from None
    except OSError as error:
        raise Invalid(f"cannot read {path}: {error.strerror}", path=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(
            f"{path} is no TOML: {error}",
            hint='A line is like: listen = "127.0.0.1:9092"',
            path=str(path),
        ) from None


def _of_environment(environment: Mapping[str, str]) -> dict[str, _Given]:
    found = {}
    for name in _kinds():
        variable = PREFIX + name.upper()
        if variable in environment:
            found[name] = _Given(environment[variable], variable)
    return found


def _misspelt(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Variables that are nearly an option: probably somebody meant it."""
    known = [PREFIX + name.upper() for name in _kinds()]
    said = []
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable in (CONFIG_VARIABLE, *known):
            continue
        near = difflib.get_close_matches(variable, known, n=1, cutoff=0.85)
        if near:
            said.append(f"{variable} is no option and is ignored. Did you mean {near[0]}?")
    return tuple(said)


def _suggestion(key: str, path: Path) -> str:
    near = difflib.get_close_matches(key.replace("-", "_").lower(), _kinds(), n=1, cutoff=0.5)
    if near:
        return f"Did you mean {near[0]}? `stratalog serve --help` lists all options."
    return f"Remove it from {path}. `stratalog serve --help` lists all options."


def _converted(given: _Given, kind: object) -> Value:
    """The value as its option takes it. Text may stand for anything; other types must fit."""
    kinds, is_optional = _alternatives(kind)
    value = given.value
    if is_optional and isinstance(value, str) and value.strip().lower() in ("", "none"):
        return None
    if get_origin(kinds[0]) is Literal:
        choices = get_args(kinds[0])
        if value in choices:
            return str(value)
        raise _wrong(given, f"one of {', '.join(choices)}")
    if bool in kinds:
        return _boolean(given)
    if int in kinds:
        return _integer(given)
    if not isinstance(value, str | Path):
        raise _wrong(given, "text")
    if Path in kinds:
        return Path(value).expanduser()
    return str(value).strip()


def _boolean(given: _Given) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True}
    words |= {"false": False, "no": False, "off": False, "0": False}
    if isinstance(given.value, bool):
        return given.value
    if isinstance(given.value, str) and given.value.strip().lower() in words:
        return words[given.value.strip().lower()]
    raise _wrong(given, "true or false")


def _integer(given: _Given) -> int:
    value = given.value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = value.strip().replace("_", "")
        if text.removeprefix("-").isdecimal() and text.isascii() and len(text) < 20:
            return int(text)
    raise _wrong(given, "a whole number")


def _wrong(given: _Given, expected: str) -> Invalid:
    return Invalid(
        f"{given.source} is {expected}, not {given.value!r}",
        hint="`stratalog serve --help` lists all options with their defaults.",
        actual=given.value,
    )


def _alternatives(kind: object) -> tuple[tuple[object, ...], bool]:
    """The types that an option may have, and whether it may be None."""
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    return tuple(each for each in kinds if each is not NoneType), NoneType in kinds


def _kinds() -> dict[str, object]:
    """All options with their types, in the order in which they are declared."""
    return {**get_type_hints(BrokerOptions), **get_type_hints(Logging)}


def _names_of(kind: type[Logging]) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser() if text else None


def default_of(name: str) -> object:
    """The default of an option, ``dataclasses.MISSING`` if it must be given."""
    for kind in (BrokerOptions, Logging):
        for each in fields(kind):
            if each.name == name:
                return _default(each)
    raise Invalid(f"there is no option {name!r}")


def _default(each: Field[object]) -> object:
    return MISSING if each.default is MISSING else each.default
