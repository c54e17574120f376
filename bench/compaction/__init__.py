"""Compaction: sets of offsets, and dropping dead records."""
