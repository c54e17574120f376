"""Commands for records: ``append``, ``read``, ``follow``."""
