"""Which objects are a log's own, by their names. Nothing else is ever deleted.

A process that removes what another one has written must be sure whose it is. So a name is matched
from end to end: the right folder, alphabet and length, and a bucket that fits its number. A file
that a person or another program put beside the log matches nothing. Neither does an object of a
kind that a later version adds: that version knows what refers to it, and this one does not.
"""

import enum
import re
from dataclasses import dataclass

from stratalog.objectlog.stored.fragment import BUCKET_FRAGMENTS
from stratalog.objectlog.stored.names import INCARNATION_LENGTH


class Kind(enum.Enum):
    """What an object is to its log."""

    MANIFEST = "manifest"
    PLAN = "plan"
    FRAGMENT = "fragment"
    SNAPSHOT = "snapshot"
    CURSOR = "cursor"
    PIN = "pin"
    STAGE = "stage"
    CERTIFICATE = "certificate"
    POLICY = "policy"
    INDEX = "index"
    BACKUP = "backup"
    RESTORING = "restoring"
    TRIAL = "trial"


@dataclass(frozen=True, slots=True)
class Own:
    """An object of the log, and the incarnation in its name, if it has one."""

    kind: Kind
    incarnation: str | None = None


_INCARNATION = f"[0-9a-f]{{{INCARNATION_LENGTH}}}"
_NAMES = re.compile(
    rf"""
    log/Bucket=(?P<bucket>[0-9a-f]{{16}})
        (?:/Writer=(?P<writer>{_INCARNATION})-[1-9][0-9]*)?         # wal3 has no such part
        /FragmentSeqNo=(?:[0-9a-f]{{16}}-)?(?P<fragment>[0-9a-f]{{16}})\.parquet
    | log/Bucket=(?P<staged>[0-9a-f]{{13}}000)
        /Writer=(?P<stager>{_INCARNATION})-[1-9][0-9]*/Staged\.parquet
    | log/Uuid=(?P<uuid>[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})\.parquet
    | snapshot/(?P<snapshot>SNAPSHOT)\.[0-9a-f]{{64}}
        (?:\.(?P<roller>{_INCARNATION})-[1-9][0-9]*)?
    | stage/(?P<stage>{_INCARNATION})\.json
    | cursor/(?P<cursor>[A-Za-z0-9_]+)\.json
    | pin/(?P<pin>[A-Za-z0-9_]+)\.json
    | certificate/(?P<certificate>[0-9a-f]{{16}})\.json
    | live/(?P<index>INDEX\.json | {_INCARNATION}-[1-9][0-9]*\.(?:parquet|ixs))
    | backup/(?P<backup>[0-9a-f]{{16}}-{_INCARNATION})\.json
    | restoring/(?P<restoring>{_INCARNATION})\.json
    | manifest/(?P<manifest>MANIFEST)
    | gc/(?P<plan>GARBAGE)
    | policy/(?P<policy>POLICY)
    | (?P<trial>probe/[0-9a-f]+ | doctor/[0-9a-f]+/.+)    # left by one that was killed
    """,
    re.VERBOSE,
)
_KINDS = {
    **{kind.value: kind for kind in Kind},
    "uuid": Kind.FRAGMENT,
    "staged": Kind.FRAGMENT,
}


def own(path: str) -> Own | None:
    """What the object at this path is to the log, or None if it is not the log's."""
    found = _NAMES.fullmatch(path)
    if found is None:
        return None
    parts = found.groupdict()
    if parts["fragment"] is not None:
        seq_no = int(parts["fragment"], 16)
        if int(parts["bucket"], 16) != seq_no // BUCKET_FRAGMENTS * BUCKET_FRAGMENTS:
            return None
    kind = next(_KINDS[name] for name, text in parts.items() if text is not None and name in _KINDS)
    return Own(kind, parts["writer"] or parts["stager"] or parts["roller"] or parts["stage"])


def is_sweepable(found: Own | None) -> bool:
    """Whether the object goes when nothing leads to it: data of ours under a name used once."""
    return (
        found is not None
        and found.kind in (Kind.FRAGMENT, Kind.SNAPSHOT)
        and found.incarnation is not None
    )
