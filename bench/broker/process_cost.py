"""What the process behind an address costs: its CPU time and memory, from Linux's ``/proc``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

LISTENING = "0A"
TICKS = os.sysconf("SC_CLK_TCK")
FIELDS_BEFORE_TIMES = 11


@dataclass(frozen=True)
class Process:
    pid: int

    def cpu_s(self) -> float:
        """User and system time of all its threads."""
        after_name = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        user, system = after_name[FIELDS_BEFORE_TIMES : FIELDS_BEFORE_TIMES + 2]
        return (int(user) + int(system)) / TICKS

    def memory_bytes(self) -> int:
        """What of it is resident."""
        resident = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(resident) * os.sysconf("SC_PAGE_SIZE")

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def process_at(address: str) -> Process | None:
    """The process that listens on this port of this machine, if it is one of ours to look at."""
    port = int(address.rpartition(":")[2])
    inodes = {f"socket:[{inode}]" for inode in _listening(port)}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _has_one_of(entry / "fd", inodes):
            return Process(int(entry.name))
    return None


def _listening(port: int) -> list[str]:
    found: list[str] = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                found.append(fields[9])
    return found


def _has_one_of(folder: Path, names: set[str]) -> bool:
    try:
        return any(os.readlink(entry) in names for entry in folder.iterdir())
    except OSError:
        return False
