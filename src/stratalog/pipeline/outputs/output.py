"""The output of a job for one log, as it is stored: one JSON object and the files that it names.

    path      outputs/{job}/{log_id}/OUTPUT
    fields    log, log_id, upto, version, schema, files, former, format, write_id,
              then when set: merge
    files     outputs/{job}/{log_id}/{run}-{n}.parquet, each with path, rows, num_bytes, sha256

All records before ``upto`` are merged in. ``version`` counts publications; 0 was never published.
``schema`` is Spark's. ``former`` are the files of the version before, which stay until the next
publication. ``merge`` says by what the rows were merged, if that is known: another merge would mix
its rows with theirs. A file's name is never used twice: ``run`` is drawn by each task that writes.
What changes an output is in ``outputs``. Persisted: keep stable.
"""

import re
from typing import ClassVar

import msgspec

from stratalog.errors import Corrupt
from stratalog.objectlog.stored import Natural, StoredObject, decode_document

OUTPUT = "OUTPUT"

_FILE_NAME = re.compile(r"[0-9a-f]+-[0-9]+\.parquet")


class OutputFile(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """One file of an output. ``path`` is its name beside OUTPUT."""

    what: ClassVar[str] = "file of an output"

    path: str
    rows: Natural
    num_bytes: Natural
    sha256: str
    """Of the whole file: once the log is collected, this is the only copy."""


class Output(StoredObject, frozen=True, kw_only=True, omit_defaults=True):
    """One version of an output."""

    what: ClassVar[str] = "output"

    log: str
    log_id: str
    upto: Natural
    version: Natural
    schema: dict[str, msgspec.Raw] | None = None
    files: tuple[OutputFile, ...]
    former: tuple[OutputFile, ...]
    format: str
    write_id: str
    merge: str | None = None

    @property
    def entries(self) -> tuple[OutputFile, ...]:
        return (*self.files, *self.former)

    @property
    def is_published(self) -> bool:
        """Whether anything was ever merged. Tidying makes outputs for which nothing was."""
        return self.version > 0

    @property
    def schema_json(self) -> str:
        """The schema of its rows as Spark writes it."""
        return msgspec.json.encode(self.schema).decode()

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files)

    @property
    def names(self) -> frozenset[str]:
        """The files that may be read."""
        return frozenset(file.path for file in self.entries)


def folder_of(job: str, log_id: str) -> str:
    """Where OUTPUT and its files lie, below the root of the herd."""
    return f"outputs/{job}/{log_id}"


def decode_output(data: bytes, path: str) -> Output:
    """Decode a stored OUTPUT. ``Corrupt`` if it names what is no file of an output."""
    output = decode_document(Output, data, path)
    strangers = [name for name in output.names if not is_file_name(name)]
    if strangers:
        raise Corrupt(f"{path} names {strangers[0]!r}, which is no file of an output", path=path)
    return output


def is_file_name(name: str) -> bool:
    """Whether a task may have given a file this name."""
    return _FILE_NAME.fullmatch(name) is not None
