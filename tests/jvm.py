"""How tests start a JVM."""

from __future__ import annotations

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for one that does not live long enough to become fast."""
