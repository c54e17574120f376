"""Repairing a data directory that a node refuses to open: what can be kept, and what is lost."""

from stratalog.segments.repair.advice import with_advice
from stratalog.segments.repair.carry_out import RepairReport, repair_disk
from stratalog.segments.repair.plan import DiskLoss
