"""A store in a local directory: the default for a program that embeds a log."""

from stratalog.store.directory.directory_store import DirectoryStore
from stratalog.store.directory.mounts import UnsafeFileSystemWarning
