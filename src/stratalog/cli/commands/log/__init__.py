"""Commands about a log as a whole: from ``init`` to ``destroy``."""
