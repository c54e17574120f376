"""The node's disk against the unavoidable work."""
