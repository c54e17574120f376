"""What could be typed in a shell still can be, and means the same."""

from __future__ import annotations

from public import commands
from public.stored import check


def test_commands_options_defaults_and_exit_codes_are_what_they_were() -> None:
    check("commands", commands.inventory())
