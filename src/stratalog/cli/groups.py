"""Commands in groups, and their options in groups.

A command takes a dataclass, and each field of it is an option of the command: what several
commands understand is written once, and what one command needs together is handed on together.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, Field, field, fields, is_dataclass
from inspect import Parameter
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from stratalog.cli.help import Group

Command = TypeVar("Command", bound=Callable[..., None])


class Commands(typer.Typer):
    """Commands below one word, as in ``stratalog cursor list``."""

    def __init__(self, name: str, *, help: str) -> None:
        super().__init__(name=name, cls=Group, no_args_is_help=True, help=help)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Command], Command]:
        register = super().command(name, **settings)

        def registered(command: Command) -> Command:
            register(spread(command))
            return command

        return registered


def option(help: str, *names: str, default: Any = None, **settings: Any) -> Any:
    """A field or parameter that is an option, called as that is if it has no names of its own."""
    return field(default=default, metadata={"names": names, "help": help, **settings})


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer understands it: the fields of its dataclasses are options of its own."""
    parameters = inspect.signature(command, eval_str=True).parameters.values()
    groups = {each.name: each.annotation for each in parameters if is_dataclass(each.annotation)}

    @functools.wraps(command)
    def flat(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = _collected(group, given)
        command(**given)

    flat.__signature__ = inspect.Signature(list(_flat(parameters)))  # type: ignore[attr-defined]
    return flat


def _flat(parameters: Iterable[Parameter]) -> Iterator[Parameter]:
    for each in parameters:
        if is_dataclass(each.annotation):
            yield from _flat(_parameters(each.annotation))
        elif isinstance(each.default, Field):
            yield _option(each.name, each.annotation, each.default)
        else:
            yield each.replace(kind=Parameter.KEYWORD_ONLY)


def _parameters(group: Any) -> Iterator[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return (_option(each.name, hints[each.name], each) for each in fields(group))


def _option(name: str, annotation: Any, declared: Field[Any]) -> Parameter:
    if declared.metadata:
        settings = dict(declared.metadata)
        names = settings.pop("names") or (f"--{name.replace('_', '-')}",)
        annotation = Annotated[annotation, typer.Option(*names, **settings)]
    default = Parameter.empty if declared.default is MISSING else declared.default
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _collected(group: Any, given: dict[str, Any]) -> Any:
    """The group with its options, which are taken out of what was given."""
    return group(
        **{
            each.name: _collected(each.annotation, given)
            if is_dataclass(each.annotation)
            else given.pop(each.name)
            for each in _parameters(group)
        }
    )
