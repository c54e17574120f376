"""How records are printed.

On a terminal they come as text with their offset and time. In a pipe the bodies come alone, as
they were appended, because the next program wants them so; ``--format`` and ``--json`` say
otherwise.

text              offset, time and body in columns; one line a record, safe for a terminal
json              one object a line; a body that is no UTF-8 comes as ``body_base64``
raw               the bodies, each with a newline: what `append` was given
length-prefixed   u32 big-endian, then the body: exact for any bytes
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from stratalog.cli.commands.records.framing import with_length
from stratalog.cli.output import moment
from stratalog.cli.reply import Reply
from stratalog.errors import Invalid

if TYPE_CHECKING:
    import pyarrow as pa

OFFSET_WIDTH = 10

_CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code != ord("\t")
} | {ord("\n"): "\\n", ord("\r"): "\\r"}


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    RAW = "raw"
    LENGTH_PREFIXED = "length-prefixed"


FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format",
        help="text has offset, time and body; raw the bodies with a newline each. "
        "On a terminal text, else raw.",
    ),
]


def choose(form: Format | None, reply: Reply) -> Format:
    """The format that was asked for; else what suits where the output goes."""
    if reply.as_json:
        if form not in (None, Format.JSON):
            raise Invalid(f"--json and --format {form} exclude each other", hint="Give one.")
        return Format.JSON
    if form is not None:
        return form
    return Format.TEXT if sys.stdout.isatty() else Format.RAW


def encode(batch: pa.RecordBatch, form: Format) -> bytes:
    return _ENCODERS[form](*(column.to_pylist() for column in batch.columns))


def printable(body: bytes) -> str:
    """A body on one line, without anything that a terminal would obey."""
    return body.decode("utf-8", "backslashreplace").translate(_CONTROLS)


def _text(offsets: list[int], times: list[int], bodies: list[bytes]) -> bytes:
    rows = zip(offsets, times, bodies, strict=True)
    return "".join(
        f"{offset:>{OFFSET_WIDTH}}  {moment(time)}  {printable(body)}\n"
        for offset, time, body in rows
    ).encode("utf-8", "backslashreplace")


def _json(offsets: list[int], times: list[int], bodies: list[bytes]) -> bytes:
    rows = zip(offsets, times, bodies, strict=True)
    return msgspec.json.Encoder().encode_lines(
        [{"offset": offset, "timestamp_us": time, **_body(body)} for offset, time, body in rows]
    )


def _body(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


_ENCODERS: dict[Format, Callable[[list[int], list[int], list[bytes]], bytes]] = {
    Format.TEXT: _text,
    Format.JSON: _json,
    Format.RAW: lambda _offsets, _times, bodies: b"\n".join([*bodies, b""]),
    Format.LENGTH_PREFIXED: lambda _offsets, _times, bodies: b"".join(map(with_length, bodies)),
}
