"""Crash recovery: the steps of opening a data directory that has been used before.

1. ``DISK`` says whose directory it is. A directory without it has never been used.
2. The journal is replayed. A file that it names and that is missing, or has another size, is
   corruption: nothing is guessed. So is a WAL file with batches that it should name.
3. The WAL files that it names are replayed in order. Their batches have consecutive numbers.
4. If the directory was closed cleanly, everything is exactly as it was then.

Up to here nothing is changed, and damage refuses to open. Then:

5. ``CLOSED`` is set aside. Bytes that may be a torn batch or a damaged one are kept aside.
6. What was found is made durable, since a killed process may have left it unsynced, and a new
   journal begins.
7. Files that it does not name were left by a crash and are removed. Not earlier: after a loss of
   power the old journal, which may name them, would count.

If 5 or 6 fails, ``CLOSED`` is put back, unless a new journal is there.
"""

from stratalog.segments.recover.doubt import (
    doubts_of,
    keep_doubtful,
    kept_doubtful,
    replace_kept,
    warn_of_cut,
)
from stratalog.segments.recover.find_files import (
    Found,
    find,
    read_live,
    record_missing,
    size_of,
    unnamed_wals,
)
from stratalog.segments.recover.match_closed import differences, must_match
from stratalog.segments.recover.read_wal import (
    FoundWal,
    ReplayedWal,
    check_partitions,
    find_wal,
    must_be_whole_before,
    replay_wal,
    voided_by,
)
from stratalog.segments.recover.settle import make_durable, put_back_closed, remove_leftovers
