"""`info`: what a log is, where it comes from, and what holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.cli import output
from stratalog.cli.commands.log.seal import seal_facts
from stratalog.cli.groups import option
from stratalog.cli.parameters import Url
from stratalog.cli.reply import Reply
from stratalog.errors import Denied, Invalid
from stratalog.store import Store, open_store, redact

if TYPE_CHECKING:
    from stratalog.cli.commands.log.tree import Branch
    from stratalog.objectlog import Manifest

TIES = {
    "seal": "sealed at",
    "predecessor": "continues",
    "fork": "fork of",
    "copy": "copy of",
}
"""What is shown only of a log that has it, and under which title."""


def info(
    url: Url,
    tree: bool = option("Draw the snapshot tree.", default=False),
    everything: bool = option(
        "Draw every node of the tree, however many there are.", "--all", default=False
    ),
    *,
    reply: Reply,
) -> None:
    """Show what a log holds, what it comes from, and what holds it.

    Costs one read, a listing of the pins and a read for each of them; with
    --tree one more for each snapshot that is shown.

    Examples:
      stratalog info orders-log
      stratalog info orders-log --tree
      stratalog info orders-log --json | jq .records
    """
    if everything and not tree:
        raise Invalid("--all goes with --tree", hint="Add --tree.")
    from stratalog.objectlog.stored import load_any_manifest

    store = open_store(url)

    async def work() -> tuple[Manifest, Branch | None, dict[str, object]]:
        if not tree:
            return (await load_any_manifest(store))[0], None, await _held(store)
        from stratalog.cli.commands.log.tree import load_tree

        with reply.progress("reading the tree", unit="nodes"):
            return *await load_tree(store, everything=everything), await _held(store)

    manifest, branch, held = reply.run(work())
    facts = {**_facts(redact(store.url), manifest), **_ties(manifest), **held}

    def show(facts: dict[str, object]) -> None:
        _draw(facts)
        if branch is not None:
            from stratalog.cli.commands.log.tree import picture

            output.say("")
            output.draw(picture(manifest, branch))

    shown = {} if branch is None else {"tree": branch.as_json()}
    reply.result(facts, lambda facts: {**facts, **shown}, show)


def _facts(url: str, manifest: Manifest) -> dict[str, object]:
    entries = manifest.entries
    return {
        "url": url,
        "first_offset": manifest.first_offset,
        "next_offset": manifest.tail.offset,
        "records": manifest.count,
        "bytes": sum(entry.num_bytes for entry in entries),
        "first_timestamp_us": entries[0].start.timestamp_us if entries else None,
        "last_timestamp_us": entries[-1].limit.timestamp_us if entries else None,
        "setsum": manifest.setsum.hexdigest(),
        "collected": manifest.collected_sum.hexdigest(),
        "root_snapshots": len(manifest.snapshots),
        "root_fragments": len(manifest.fragments),
        "depth": max((pointer.depth for pointer in manifest.snapshots), default=0),
        "writer": manifest.writer,
        "format": manifest.format,
        "writable": manifest.is_ours and manifest.seal is None,
        "sealed": manifest.seal is not None,
        "compacted": manifest.compacted is not None,
    }


async def _held(store: Store) -> dict[str, object]:
    """What pins hold of a log. None if they may not be listed."""
    from stratalog.objectlog.holds import PinStore

    try:
        pins = await PinStore(store).list()
    except Denied:
        return {"pins": None, "pinned_bytes": None}
    return {"pins": len(pins), "pinned_bytes": sum(pin.fragment_bytes for pin in pins)}


def _ties(manifest: Manifest) -> dict[str, object]:
    """Where the log ends, where it comes from and where it goes on."""
    from stratalog.objectlog.holds import note_of
    from stratalog.objectlog.stored import copy_note_of, predecessor_of, seal_of

    seal, before = seal_of(manifest), predecessor_of(manifest)
    forked, copied = note_of(manifest), copy_note_of(manifest)
    return {
        "seal": seal and seal_facts(seal),
        "predecessor": before and redact(before.url),
        "fork": forked
        and {
            "source": redact(forked.source),
            **output.fields_of(forked, "at", "state", "held_by"),
            "hold": forked.pin,
        },
        "copy": copied
        and {
            "source": redact(copied.source),
            "from": copied.start,
            "to": copied.limit,
            "state": copied.state,
        },
    }


def _draw(facts: dict[str, object]) -> None:
    table = output.facts(overflow="fold")
    for name, value in facts.items():
        if name in TIES:
            if value is not None:
                table.add_row(TIES[name], _tie(name, value))
        else:
            title = name.replace("_timestamp_us", "_time").replace("_", " ")
            why = " (sealed)" if name == "writable" and facts["sealed"] else ""
            more = "at most " if name == "records" and facts["compacted"] else ""
            table.add_row(title, f"{more}{_cell(name, value)}{why}")
    output.draw(table)


def _tie(name: str, value: object) -> str:
    """A seal, a predecessor, a fork or a copy in one line."""
    if not isinstance(value, dict):
        return str(value)
    if name == "seal":
        successor = f"; goes on at {value['successor']}" if value["successor"] else ""
        note = f": {value['note']}" if value["note"] else ""
        return f"{output.moment(value['sealed_us'])} by {value['writer']}{note}{successor}"
    if name == "fork":
        return f"{value['source']} at offset {value['at']} ({value['state']})"
    return f"{value['source']}, offsets {value['from']} to {value['to'] - 1} ({value['state']})"


def _cell(name: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        if name.endswith("bytes"):
            return f"{output.size(value)} ({value:,})"
        return output.moment(value) if name.endswith("_us") else f"{value:,}"
    return str(value)
