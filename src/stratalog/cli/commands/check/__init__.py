"""Commands that check: ``scrub``, ``verify``, ``soak``."""
