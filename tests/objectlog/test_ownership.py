"""Whose an object is: only names that match from end to end are a log's."""

from __future__ import annotations

import pytest

from objectlog.whole_log import ids
from stratalog.objectlog.erasure.certificate import certificate_path
from stratalog.objectlog.holds.cursor import cursor_path
from stratalog.objectlog.holds.stored_pin import pin_path
from stratalog.objectlog.holds.upload_guard import upload_guard_path
from stratalog.objectlog.stored.manifest import MANIFEST_PATH
from stratalog.objectlog.stored.names import UploadNames
from stratalog.objectlog.stored.ownership import Kind, Own, is_sweepable, own
from stratalog.objectlog.stored.plan import GARBAGE_PATH
from stratalog.objectlog.stored.policy import POLICY_PATH
from stratalog.setsum import EMPTY, Setsum

NAMES = UploadNames(ids)
NAMES.incarnation = "0123456789ab"  # every run of the tests has the same names
MINE = NAMES.incarnation
FRAGMENT = (
    "log/Bucket=0000000000001000/Writer=0123456789ab-7/FragmentSeqNo=0000000000001234.parquet"
)
SNAPSHOT = f"snapshot/SNAPSHOT.{EMPTY.hexdigest()}.0123456789ab-12"


@pytest.mark.parametrize("seq_no", [1, 4095, 4096, 2**40, 2**63 - 1])
def test_what_writers_upload_is_known_by_its_incarnation(seq_no: int) -> None:
    for path, kind in [
        (NAMES.fragment(seq_no), Kind.FRAGMENT),
        (NAMES.snapshot(Setsum.of(b"%d" % seq_no)), Kind.SNAPSHOT),
    ]:
        assert own(path) == Own(kind, MINE)
        assert is_sweepable(own(path))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (MANIFEST_PATH, Own(Kind.MANIFEST)),
        (GARBAGE_PATH, Own(Kind.PLAN)),
        (certificate_path("0123456789abcdef"), Own(Kind.CERTIFICATE)),
        (POLICY_PATH, Own(Kind.POLICY)),
        (cursor_path("a_Z_09"), Own(Kind.CURSOR)),
        (pin_path("a_Z_09"), Own(Kind.PIN)),
        (upload_guard_path(MINE), Own(Kind.STAGE, MINE)),
        ("live/INDEX.json", Own(Kind.INDEX)),
        (f"live/{MINE}-7.parquet", Own(Kind.INDEX)),
        (f"live/{MINE}-12.ixs", Own(Kind.INDEX)),
        (f"probe/{MINE}", Own(Kind.TRIAL)),
        (f"doctor/{MINE}/order/a-b", Own(Kind.TRIAL)),
        (
            "log/Bucket=0000000000001000/FragmentSeqNo=0000000000001234.parquet",
            Own(Kind.FRAGMENT),
        ),
        ("log/Uuid=01234567-89ab-cdef-0123-456789abcdef.parquet", Own(Kind.FRAGMENT)),
        (f"snapshot/SNAPSHOT.{EMPTY.hexdigest()}", Own(Kind.SNAPSHOT)),
    ],
)
def test_the_rest_of_a_log_is_known_and_never_swept(path: str, expected: Own) -> None:
    assert own(path) == expected
    assert not is_sweepable(own(path))


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "log/README.md",
        "log",
        FRAGMENT.upper(),
        FRAGMENT + "\n",
        FRAGMENT + ".bak",
        "x" + FRAGMENT,
        "another-log/" + FRAGMENT,
        FRAGMENT.replace("1234", "2234"),
        FRAGMENT.replace("ab-7", "ab-07"),
        FRAGMENT.replace("ab-7", "ab-0"),
        FRAGMENT.replace("ab-7", "ab-٧"),
        FRAGMENT.replace("ab-7", "abc-7"),
        FRAGMENT.replace("ab-7", "AB-7"),
        FRAGMENT.replace("1234.", "123."),
        FRAGMENT.replace("parquet", "parque"),
        FRAGMENT.replace("parquet", "parquet/x"),
        FRAGMENT.replace(".parquet", "xparquet"),
        SNAPSHOT.replace("SNAPSHOT", "snapshot"),
        SNAPSHOT.replace(".0123456789ab", ".0123456789a"),
        SNAPSHOT.replace("000.", "00."),
        SNAPSHOT + "x",
        "snapshot/SNAPSHOT.",
        "manifest/MANIFEST.old",
        "manifest/manifest",
        "gc/GARBAGE/x",
        "certificate/0123.json",
        "policy/policy",
        "policy/POLICY.json",
        "cursor/a-b.json",
        "cursor/a.txt",
        "cursor/x/y.json",
        "pin/a-b.json",
        "stage/0123456789a.json",
        "stage/0123456789ab",
        "stage/0123456789ab.json/x",
        "live/index.json",
        "live/0123456789ab-0.parquet",
        "live/0123456789ab-1.json",
        "live/0123456789a-1.parquet",
        "probe/x/y",
        "doctor/0123456789ab",
    ],
)
def test_what_merely_resembles_a_name_is_not_the_logs(path: str) -> None:
    assert own(path) is None
    assert not is_sweepable(own(path))
