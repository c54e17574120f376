"""How the help pages look: what stands for a value has a name, and no type of Python's."""

from typing import Any

from typer.core import TyperArgument, TyperGroup


class Group(TyperGroup):
    """A command with commands below it, whose pages are plain."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _plain(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _plain(command.get_params(ctx))
            command.help = _indented(command.help or "")
        return command


def _plain(parameters: list[Any]) -> list[Any]:
    """A flag takes no value, and an argument has its name already. Typer would add ``<bool>``."""
    for each in parameters:
        if isinstance(each, TyperArgument):
            each.display_type_rich = lambda ctx: None  # type: ignore[method-assign]  # noqa: ARG005
        elif each.is_flag:
            each.metavar = ""
    return parameters


def _indented(text: str) -> str:
    """Let examples keep their indentation: Typer takes it away, unless a blank line comes first."""
    first, gap, rest = text.partition("\n\n")
    return f"{first}{gap}\n{rest.lstrip()}" if gap else text
