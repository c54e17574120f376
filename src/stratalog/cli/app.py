"""The commands and what they have in common: one program, its help, its version."""

from typing import Annotated

import typer

from stratalog._version import __version__
from stratalog.cli.commands.broker.groups import groups
from stratalog.cli.commands.broker.serve import serve
from stratalog.cli.commands.broker.topics import topics
from stratalog.cli.commands.check.doctor import doctor
from stratalog.cli.commands.check.scrub import scrub
from stratalog.cli.commands.check.soak import soak
from stratalog.cli.commands.check.verify import verify
from stratalog.cli.commands.disk import disks
from stratalog.cli.commands.herd.herd import herds
from stratalog.cli.commands.herd.pipeline import pipelines
from stratalog.cli.commands.keep.backup import backup, backups, restore
from stratalog.cli.commands.keep.certificate import certificates
from stratalog.cli.commands.keep.collect import collect
from stratalog.cli.commands.keep.compact import compact
from stratalog.cli.commands.keep.cursor import cursors
from stratalog.cli.commands.keep.erase import erase
from stratalog.cli.commands.keep.pin import pins
from stratalog.cli.commands.keep.policy import policies
from stratalog.cli.commands.keep.sweep import sweep
from stratalog.cli.commands.log.copy import copy
from stratalog.cli.commands.log.cost import cost
from stratalog.cli.commands.log.destroy import destroy
from stratalog.cli.commands.log.fork import fork
from stratalog.cli.commands.log.info import info
from stratalog.cli.commands.log.init import init
from stratalog.cli.commands.log.seal import migrate, seal
from stratalog.cli.commands.log.sinks import sinks
from stratalog.cli.commands.records.append import append
from stratalog.cli.commands.records.read import follow, read
from stratalog.cli.exits import exits_as_text
from stratalog.cli.groups import spread
from stratalog.cli.program import Program

app = typer.Typer(
    name="stratalog",
    cls=Program,
    no_args_is_help=True,
    rich_markup_mode="rich",
    epilog=exits_as_text(),
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stratalog {__version__}")
        raise typer.Exit


@app.callback()
def stratalog(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """A log that lives in object storage: append to it, read it, follow it, look after it.

    A log is named by a directory or by a URL (s3://, gs://, az://, file://).

    Begin with:
      stratalog init orders-log
      echo hello | stratalog append orders-log
      stratalog read orders-log

    Kafka clients need a broker:
      stratalog serve --data broker-data
    """


for command in (
    init,
    append,
    read,
    follow,
    info,
    seal,
    migrate,
    fork,
    copy,
    backup,
    backups,
    restore,
    collect,
    compact,
    erase,
    sweep,
    scrub,
    doctor,
    destroy,
    verify,
    cost,
    soak,
    serve,
):
    app.command()(spread(command))
for group in (
    cursors,
    pins,
    certificates,
    policies,
    sinks,
    herds,
    pipelines,
    disks,
    topics,
    groups,
):
    app.add_typer(group)
