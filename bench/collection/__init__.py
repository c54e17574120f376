"""Collection and scrubbing: their cost, and their cost for concurrent appends."""
