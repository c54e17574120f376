"""The object log against the unavoidable work."""
