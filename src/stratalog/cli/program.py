"""How the program ends: every error becomes a message, a next step and an exit code.

A person sees the message in red and then the hint; with ``--json`` a program reads one JSON
object on standard error. A traceback appears only for a defect of ours. Whatever is shown passes
through ``redact`` first.
"""

import contextlib
import errno
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import typer

from stratalog.cli import exits, output
from stratalog.cli.help import Group
from stratalog.errors import Invalid, NotFound, StratalogError
from stratalog.store import redact

BROKER_PACKAGES = {"google_crc32c": "google-crc32c", "kio": "kio"}
"""What the broker imports of others, and the package that has it."""


class Program(Group):
    """The root of all commands; its ``main`` decides how the process ends."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        _replace_closed_streams()
        given = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in (given[: given.index("--")] if "--" in given else given)

        def run() -> int:
            answer = super(Program, self).main(
                given, prog_name, complete_var, False, windows_expand_args, **extra
            )
            try:
                sys.stdout.flush()
            except BrokenPipeError:
                return exits.BROKEN_PIPE
            return answer if isinstance(answer, int) else exits.OK

        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: output.warn(str(message))
            code = self._guarded(run, as_json)
        _finish_stdout()
        if standalone_mode:
            sys.exit(code)
        return code

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _abandon_stdout()
            raise typer.Exit(exits.BROKEN_PIPE) from None
        except ModuleNotFoundError as missing:
            _say_what_to_install(missing)
            raise

    def _guarded(self, run: Callable[[], int], as_json: bool) -> int:
        """Run the command; whatever it raises ends here."""
        try:
            return run()
        except StratalogError as error:
            code = exits.exit_code(error)
            output.show_error(error.kind, str(error), _hint(error), code, as_json, _facts(error))
        except typer.TyperException as error:
            code = _show_usage_error(error, as_json)
        except SystemExit as end:
            # Rich and Typer end the program by themselves when their output is closed.
            if not isinstance(end.__context__, BrokenPipeError):
                raise
            code = exits.BROKEN_PIPE
        except OSError as error:
            code = exits.DEFECT
            message = f"{error.strerror or error}"
            hint = "Check the disk and the descriptors of this machine, then try again."
            if error.errno == errno.EBADF:
                message, hint = "the output is closed", "Give it a place to go, e.g. /dev/null."
            output.show_error("io", message, hint, code, as_json)
        except Exception as error:  # noqa: BLE001 - the last place where a defect can be reported
            code = exits.DEFECT
            trace = redact(traceback.format_exc())
            if not as_json:
                sys.stderr.write(trace)
            output.show_error(
                "defect",
                f"{type(error).__name__}: {error}",
                "This is a defect of stratalog. Please report it with the lines above.",
                code,
                as_json,
                {"traceback": trace},
            )
        return code


def _say_what_to_install(missing: ModuleNotFoundError) -> None:
    """Raise the error of ours for a package that an extra brings, if it is one of those."""
    package = (missing.name or "").partition(".")[0]
    if package == "pyspark":
        from stratalog.pipeline.session import require_pyspark

        require_pyspark()
    if package in BROKER_PACKAGES:
        raise Invalid(
            f"the broker is not installed: there is no package {BROKER_PACKAGES[package]}",
            hint='Install it: `pip install "stratalog[broker]"`.',
        ) from None


def _hint(error: StratalogError) -> str:
    """The next step in a shell, where there is no writer to open."""
    if isinstance(error, NotFound):
        from stratalog.objectlog.stored import MANIFEST_PATH

        if error.path == MANIFEST_PATH:
            return "Check the spelling, or create it with `stratalog init`."
    return error.hint


def _facts(error: StratalogError) -> dict[str, object]:
    """The values that an error carries, as far as they are plain."""
    named = {"path": error.path, "expected": error.expected, "actual": error.actual}
    return {
        name: redact(value) if isinstance(value, str) else value
        for name, value in named.items()
        if isinstance(value, str | int | float)
    }


def _show_usage_error(error: typer.TyperException, as_json: bool) -> int:
    if type(error).__name__ != "NoArgsIsHelpError":
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "stratalog"
        hint = f"See `{path} --help`."
        output.show_error("invalid", error.format_message(), hint, exits.USAGE, as_json)
    return exits.USAGE


def _replace_closed_streams() -> None:
    """A shell may start us without a stream (``>&-``), which Python shows as ``None``.

    Complaints may go nowhere. Results that cannot be written are a failure, so what is written
    there fails: it goes to a file that is open for reading.
    """
    for name, access in (("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            stream = open(os.open(os.devnull, access), "w", encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)


def _finish_stdout() -> None:
    """Leave the interpreter nothing to flush at exit, where a failure would be its exit code."""
    try:
        sys.stdout.flush()
    except OSError:
        _abandon_stdout()


def _abandon_stdout() -> None:
    """The reader is gone: discard what is still buffered, silently."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
