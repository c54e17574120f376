"""Compaction: sets of offsets, and dropping what does not live."""
