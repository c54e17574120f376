"""Reading a damaged journal: of each record either copy will do, up to the first that has none."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from stratalog.errors import Corrupt
from stratalog.segments.format import (
    GROWING_MAJOR,
    HEAD_BYTES,
    SIZED_MAJOR,
    Frame,
    Head,
    Layout,
    Whole,
    apply,
    decode_edit,
    find_frame,
)
from stratalog.segments.io import ReadableFiles, read_file


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What a damaged journal still says."""

    layout: Layout
    path: str
    file_number: int
    last_record: int
    """The last one that is whole."""
    highest_record: int
    """The highest number of any frame in it: new records begin above it."""
    is_complete: bool
    """Whether no record can be missing."""


def salvage_journals(files: ReadableFiles) -> Salvaged | None:
    """The one that says most; ``None`` if none has a whole first record."""
    found = [_salvaged(files, f"journal/{name}") for name in files.list("journal")]
    return max((each for each in found if each), key=lambda each: each.last_record, default=None)


def _salvaged(files: ReadableFiles, path: str) -> Salvaged | None:
    data = read_file(files, path)
    number, nonce, major = _head(data, path)
    frame = find_frame(data, HEAD_BYTES, nonce, 0)
    layout, size, last, position = Layout(), 0, 0, HEAD_BYTES
    with contextlib.suppress(Corrupt):
        while frame is not None and (not last or frame.number in (last, last + 1)):
            if frame.number != last:
                edit = decode_edit(frame.descriptor, path)
                if not last and not isinstance(edit, Whole):
                    break
                layout = apply(layout, edit, path)
                size = edit.size if isinstance(edit, Whole) else size
                last = frame.number
            position = frame.end
            frame = find_frame(data, position, nonce, last)
    if not last:
        return None
    is_cut = major >= SIZED_MAJOR and len(data) < size
    highest = max([last, *(each.number for each in _frames(data, position, nonce))])
    return Salvaged(layout, path, number, last, highest, frame is None and not is_cut)


def _head(data: bytes, path: str) -> tuple[int, bytes, int]:
    """Number, nonce and major. The name of the file repeats the first two."""
    with contextlib.suppress(Corrupt):
        head = Head.from_bytes(data, path)
        return head.number, head.nonce, head.major
    number, nonce, *_ = path.rpartition("/")[2].split(".")
    try:
        return int(number), bytes.fromhex(nonce), GROWING_MAJOR
    except ValueError:
        raise Corrupt(f"nothing says which journal {path} is", path=path) from None


def _frames(data: bytes, position: int, nonce: bytes) -> list[Frame]:
    found = []
    while (frame := find_frame(data, position, nonce, 0)) is not None:
        found.append(frame)
        position = frame.end
    return found
