"""Collection and scrubbing: what they cost, and what they cost those who append meanwhile."""
