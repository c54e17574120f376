"""Commands for more than one log: ``herd``, ``pipeline``, ``disk``."""
