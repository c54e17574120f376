"""Which file systems keep the promises that a directory store builds on, and which do not.

Over a network, ``flock`` may exclude only the processes of one machine and a rename may be seen
late, so two writers could both win. That cannot be detected by trying it from one machine: the
kind of the mount is the only sign, and a warning the only thing that can be given.
"""

import functools
import os
import warnings

MOUNTS = "/proc/self/mountinfo"

UNSAFE = frozenset(
    """9p acfs afs afpfs beegfs ceph cifs coda davfs fuse.sshfs gfs gfs2 glusterfs gpfs lustre ncpfs
    nfs nfs4 ocfs2 orangefs pvfs2 smb smb2 smb3 smbfs virtiofs vboxsf webdav""".split()
)
LOCAL_FUSE = frozenset(
    """fuse.bindfs fuse.encfs fuse.fuse-overlayfs fuse.gocryptfs fuse.mergerfs fuse.ntfs-3g
    fuse.zfs""".split()
)


class UnsafeFileSystemWarning(UserWarning):
    """The directory is on a file system whose locks may not hold between machines."""


_warned: set[str] = set()


def warn_if_unsafe(root: str) -> None:
    """Warn, once for each root in this process, if its file system is reached over a network."""
    kind = _kind_of_device(_device(root))
    if kind is None or not is_unsafe(kind) or root in _warned:
        return
    _warned.add(root)
    warnings.warn(
        f"{root} is on a {kind} file system: its locks may not exclude other machines, and then "
        "acknowledged records can be lost. Use a local disk, or a bucket (s3://, gs://, az://).",
        UnsafeFileSystemWarning,
        stacklevel=3,
    )


def is_unsafe(kind: str) -> bool:
    """Any FUSE mount that is not known to be local may be a bucket or another machine."""
    return kind in UNSAFE or (kind.startswith("fuse.") and kind not in LOCAL_FUSE)


def _device(root: str) -> str:
    """The device of the nearest directory that exists, as the table of mounts writes it."""
    while True:
        try:
            device = os.stat(root).st_dev
            return f"{os.major(device)}:{os.minor(device)}"
        except OSError:
            if root == os.path.dirname(root):
                return ""
            root = os.path.dirname(root)


@functools.lru_cache(maxsize=64)
def _kind_of_device(device: str) -> str | None:
    """The kind of file system on a device. ``None`` where the system does not tell (macOS)."""
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as table:
            for line in table:
                mount, _, details = line.partition(" - ")
                if mount.split()[2] == device:
                    return details.split()[0]
    except (OSError, IndexError):
        return None
    return None
