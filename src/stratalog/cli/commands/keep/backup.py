"""`backup`, `backups`, `restore`: keep what a log was at a moment, and bring it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.cli import output
from stratalog.cli.groups import option
from stratalog.cli.parameters import PLACE, Url, place
from stratalog.cli.reply import Reply
from stratalog.store import redact

if TYPE_CHECKING:
    from stratalog.objectlog.backup import BackedUp, Backup, BackupProgress, Restored

Dest = Annotated[str, place("DEST", f"The place of the backups: {PLACE}")]
Id = Annotated[
    str | None,
    typer.Option("--backup", metavar="ID", help="Which one. Without it, the newest."),
]


def backup(
    url: Url,
    dest: Dest,
    note: str = option("What to remember about it.", default="", metavar="TEXT"),
    verify: bool = option(
        "Also read and compare the bytes of what earlier backups have copied.", default=False
    ),
    *,
    reply: Reply,
) -> None:
    """Take a backup of a log: all that it has now, verified, at another place.

    Writers, collections and compactions may go on meanwhile. A place keeps any
    number of backups of one log, and each object once, so the next one copies
    only what is new, and what is missing there. The bytes that are there are
    read again only with `--verify`. If the command is interrupted, run it again.

    Examples:
      stratalog backup orders-log s3://bucket/backups/orders
      stratalog backup orders-log orders-backups --note "before the move"
    """
    from stratalog.objectlog.backup import backup as take

    with reply.late_progress("taking a backup", unit="bytes") as advance:

        def on_progress(done: BackupProgress) -> None:
            advance(done.num_bytes, done.num_bytes_total)

        taken = reply.run(take(url, dest, note=note, verify=verify, on_progress=on_progress))
    reply.result(taken, _taken_facts, _show_taken)


def restore(
    dest: Dest,
    url: Url,
    backup: Id = None,
    no_cursors: bool = option("Bring the records back without the cursors.", default=False),
    *,
    reply: Reply,
) -> None:
    """Bring a log back from a backup, to a place where nothing is.

    With its policy and its cursors, each at the offset that it held. Every
    object is verified. If the command is interrupted, run it again. Records
    that were erased after the backup was taken are there again: erase them.

    Examples:
      stratalog restore s3://bucket/backups/orders orders-log
      stratalog restore orders-backups orders-log --backup 0123456789ab
    """
    from stratalog.objectlog.backup import restore as bring_back

    with reply.late_progress("restoring", unit="bytes") as advance:

        def on_progress(done: BackupProgress) -> None:
            advance(done.num_bytes, done.num_bytes_total)

        work = bring_back(dest, url, backup=backup, cursors=not no_cursors, on_progress=on_progress)
        restored = reply.run(work)
    reply.result(restored, _restored_facts, _show_restored)


def backups(
    dest: Dest,
    check: bool = option("Read all that one leads to, and verify it.", default=False),
    backup: Id = None,
    *,
    reply: Reply,
) -> None:
    """List the backups at a place, or verify one of them.

    Examples:
      stratalog backups s3://bucket/backups/orders
      stratalog backups orders-backups --check
    """
    from stratalog.objectlog.backup import check_backup, list_backups

    if not check:
        reply.listing(
            reply.run(list_backups(dest)),
            _backup_facts,
            _row,
            columns=("backup", "taken", "records", "bytes", "note"),
            right=("records", "bytes"),
            empty="no backup is there",
        )
        return
    with reply.late_progress("checking", unit="bytes") as advance:

        def on_progress(done: BackupProgress) -> None:
            advance(done.num_bytes, done.num_bytes_total)

        checked = reply.run(check_backup(dest, backup=backup, on_progress=on_progress))
    reply.result(checked, _restored_facts, _show_checked)


def _backup_facts(backup: Backup) -> dict[str, object]:
    names = ("id", "source", "taken_us", "note", "first_offset", "tail", "num_bytes", "cursors")
    return output.fields_of(backup, *names)


def _copied_facts(done: BackedUp | Restored) -> dict[str, object]:
    return {"copied_objects": done.objects, "copied_bytes": done.num_bytes}


def _taken_facts(taken: BackedUp) -> object:
    return {**_backup_facts(taken.backup), **_copied_facts(taken)}


def _restored_facts(restored: Restored) -> object:
    return {
        "url": redact(restored.url),
        "backup": _backup_facts(restored.backup),
        **_copied_facts(restored),
    }


def _row(each: Backup) -> tuple[str, ...]:
    records = f"{each.first_offset:,} to {each.tail - 1:,}" if _records(each) else "none"
    return (each.id, output.moment(each.taken_us), records, output.size(each.num_bytes), each.note)


def _show_taken(taken: BackedUp) -> None:
    output.say(f"took the backup {taken.backup.id} of {_what(taken.backup)}")
    output.say(f"copied {_objects(taken)}; what was there already was not copied again")


def _show_restored(restored: Restored) -> None:
    output.say(f"restored {_what(restored.backup)} to {redact(restored.url)}")
    output.say(f"copied {_objects(restored)}, each verified")


def _show_checked(checked: Restored) -> None:
    output.say(f"the backup {checked.backup.id} of {_what(checked.backup)} is whole")
    output.say(f"verified {_objects(checked)}")


def _what(backup: Backup) -> str:
    records = output.count(_records(backup), "record")
    return f"{redact(backup.source)}: {records} ({output.size(backup.num_bytes)})"


def _records(backup: Backup) -> int:
    return backup.tail - backup.first_offset


def _objects(done: BackedUp | Restored) -> str:
    return f"{output.count(done.objects, 'object')} ({output.size(done.num_bytes)})"
