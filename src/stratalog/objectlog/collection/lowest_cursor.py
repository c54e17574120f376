"""Where a collection may cut: at the lowest cursor, or at the cut-off if that is lower."""

from collections.abc import Sequence

from stratalog.errors import Invalid
from stratalog.objectlog.holds import Cursor, CursorStore
from stratalog.objectlog.stored import Manifest, check_offset, load_manifest
from stratalog.store import Store


async def list_cursors(store: Store, cursors: CursorStore) -> list[Cursor]:
    """The cursors of a log. ``Invalid`` if it has none: then nobody has said what may go."""
    found = await cursors.list()
    if not found:
        await load_manifest(store)  # without a log, `NotFound` tells more
        raise Invalid(
            "a log without any cursor is not collected: nobody has said what may go",
            hint="Create one, e.g. `stratalog cursor create URL retention OFFSET`.",
        )
    return found


def lowest(cursors: Sequence[Cursor], manifest: Manifest, cut_off: int | None) -> tuple[int, str]:
    """The cut, and who holds it there."""
    check_cut_off(cut_off)
    first_offset = manifest.first_offset
    counting = [
        (held, cursor.name)
        for cursor in cursors
        if (held := cursor.holds(first_offset)) is not None
    ]
    if not counting:
        raise Invalid(
            "no cursor of this log counts: all lie before its start",
            hint="Create one, or move one forward.",
        )
    held, name = min(counting)
    if cut_off is not None and cut_off < held:
        return cut_off, "the cut-off"
    return held, name


def check_cut_off(cut_off: int | None) -> None:
    if cut_off is not None:
        check_offset(cut_off)
