"""What somebody writes down for people: the note of a seal or a pin."""

from __future__ import annotations

from stratalog.errors import Invalid

NOTE_LENGTH_MAX = 1000


def check_note(note: object) -> str:
    """The note, if it is text that can be stored."""
    if not isinstance(note, str) or len(note) > NOTE_LENGTH_MAX:
        raise Invalid(f"a note is text of at most {NOTE_LENGTH_MAX} characters", hint="Shorten it.")
    try:
        note.encode()
    except UnicodeEncodeError:
        raise Invalid(
            "a note is text, and half of a character is none",
            hint='Decode bytes with errors="replace", not "surrogateescape".',
        ) from None
    return note
