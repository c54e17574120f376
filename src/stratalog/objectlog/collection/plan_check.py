"""The verifier: a plan is believed only if it balances against the tree that it cuts.

It is independent of the code that makes plans. It compares the stored plan with the root and with
the replaced nodes as they are stored, and requires of every level:

    what was there  =  what goes  +  what stays

This is checked entry by entry, so that nothing is dropped twice, kept twice, or forgotten. Ranges
must meet, every sum must be the sum of its parts, and no path may leave ``log/`` and ``snapshot/``.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from stratalog.errors import Corrupt
from stratalog.objectlog.stored import (
    GARBAGE_PATH,
    Entry,
    Fragment,
    Garbage,
    Manifest,
    Snapshot,
    check_adjacent,
)
from stratalog.setsum import Setsum

OWNED = ("log/", "snapshot/")


def check_plan(plan: Garbage, manifest: Manifest, nodes: Mapping[str, Snapshot]) -> None:
    """Raise ``Corrupt`` unless the plan, applied to this manifest, loses exactly what it names.

    ``nodes`` has at least the stored nodes that the plan replaces, by path.
    """
    taken = taken_by(plan, manifest)
    made = {node.path: node for node in plan.snapshots_to_make}
    _check_paths([*plan.dropped, *plan.snapshots_to_replace], made)
    _check_made(plan.snapshots_to_make)
    cut = {pointer.path: nodes[pointer.path].entries for pointer in plan.snapshots_to_replace}
    before = _leaves(taken, cut)
    after = _leaves(plan.root_after, {path: node.entries for path, node in made.items()})
    require(
        Counter(map(identity, before)) == Counter(map(identity, (*plan.dropped, *after))),
        "what goes and what stays are not what was there",
    )
    _check_cut(plan, manifest, after)
    gone = Setsum.total(entry.setsum for entry in plan.dropped)
    require(gone == plan.setsum_to_discard, "what goes does not add up to its sum")
    was = Setsum.total(entry.setsum for entry in taken)
    stays = Setsum.total(entry.setsum for entry in plan.root_after)
    require(was == gone + stays, "the sums of what goes and what stays do not balance")


def taken_by(plan: Garbage, manifest: Manifest) -> tuple[Entry, ...]:
    """The entries of the stored root that the plan replaces."""
    taken = manifest.entries[: len(plan.root_before)]
    require(
        tuple(entry.path for entry in taken) == plan.root_before,
        "it changes another root than the stored one",
    )
    return taken


def identity(entry: Entry) -> tuple[object, ...]:
    """Equal for two entries if they link the same object for the same records."""
    ends = (entry.start.offset, entry.limit.offset)
    return (entry.base, entry.path, *ends, entry.num_bytes, entry.setsum)


def require(holds: bool, complaint: str) -> None:
    if not holds:
        raise Corrupt(
            f"the plan is not to be trusted: {complaint}",
            path=GARBAGE_PATH,
            hint="Keep a copy of the object, then cancel it with `stratalog collect --cancel`.",
        )


def _check_made(nodes: Sequence[Snapshot]) -> None:
    for node in nodes:
        require(len(node.entries) > 1, f"{node.path} has a single child")
        node.check(node.pointer())


def _check_paths(entries: Iterable[Entry], made: Mapping[str, Snapshot]) -> None:
    for entry in entries:
        require(entry.path.startswith(OWNED), f"{entry.path} is not an object of the tree")
        require(entry.path not in made, f"{entry.path} is both made and taken away")


def _check_cut(plan: Garbage, manifest: Manifest, after: Sequence[Entry]) -> None:
    """The dropped entries lie side by side, from the start of the log to the first to keep."""
    dropped, cut = plan.dropped, plan.first_to_keep.offset
    check_adjacent(dropped, GARBAGE_PATH)
    require(
        (dropped[0].start.offset, dropped[-1].limit.offset) == (manifest.first_offset, cut),
        "what goes is not the beginning of the log",
    )
    first = next(iter(after), None)
    require(first is None or first.start.offset == cut, "what stays begins elsewhere")
    if isinstance(first, Fragment) and isinstance(first.first_seq_no, int):
        require(
            first.first_seq_no == plan.first_seq_no_to_keep, "its first number to keep is another"
        )


def _leaves(entries: Sequence[Entry], below: dict[str, tuple[Entry, ...]]) -> list[Entry]:
    """The entries, with every known node replaced by its children, once."""
    found: list[Entry] = []
    for entry in entries:
        children = below.pop(entry.path, None)
        found += [entry] if children is None else _leaves(children, below)
    return found
