"""What the manifest of a copy says about where it comes from.

    where     ``copy`` in the manifest, an object
    fields    source, from, to, setsum, id, state (copying, done)

``source`` is the URL of the log that is copied, ``from`` and ``to`` the stretch, ``to`` exclusive.
``setsum`` is the sum that the source had there when the copy began, so it does not depend on what
becomes of the source. ``id`` tells the pins that the copy holds there. Nobody reads or writes a log
whose state is ``copying``. Persisted: keep stable.
"""

from typing import ClassVar, Literal

import msgspec

from stratalog.objectlog.stored.manifest import Manifest
from stratalog.objectlog.stored.position import Natural
from stratalog.objectlog.stored.seal import from_fields
from stratalog.objectlog.stored.stored_json import StoredObject
from stratalog.setsum import Setsum


class CopyNote(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    what: ClassVar[str] = "note of a copy"

    source: str
    start: Natural = msgspec.field(name="from")
    limit: Natural = msgspec.field(name="to")
    setsum: Setsum
    id: str
    state: Literal["copying", "done"]

    @property
    def pin_prefix(self) -> str:
        """How the names of its pins in the source begin."""
        return f"copy_{self.id}_"


def copy_note_of(manifest: Manifest) -> CopyNote | None:
    return from_fields(CopyNote, manifest.copy)
