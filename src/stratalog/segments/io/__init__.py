"""File-system calls, and the threads that make them."""

from stratalog.segments.io.files import (
    Buffer,
    File,
    FileSystem,
    LocalFiles,
    NotWritten,
    ReadableFiles,
    opened,
    read_file,
    typed,
    typed_errors,
    write_file,
    write_pieces,
    write_then_sync,
)
from stratalog.segments.io.threads import HeldFile, Tasks, in_sync_thread, in_thread
