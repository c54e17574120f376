"""Backups: what a log was at a moment, kept at another place, and brought back from there."""

from stratalog.objectlog.backup.back_up import BackedUp, backup
from stratalog.objectlog.backup.copy_objects import BackupProgress
from stratalog.objectlog.backup.restore_log import Restored, check_backup, restore
from stratalog.objectlog.backup.taken_backups import Backup, list_backups
