"""What this process uses of its machine."""

import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory, processor time and descriptors. None where the system does not say."""

    resident_bytes: int | None
    peak_bytes: int
    cpu_s: float
    open_files: int | None


def usage() -> Usage:
    """What the process uses now."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    unit = 1 if sys.platform == "darwin" else 1024
    return Usage(
        resident_bytes=_resident_bytes(),
        peak_bytes=spent.ru_maxrss * unit,
        cpu_s=spent.ru_utime + spent.ru_stime,
        open_files=_open_files(),
    )


def _resident_bytes() -> int | None:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def _open_files() -> int | None:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return None
