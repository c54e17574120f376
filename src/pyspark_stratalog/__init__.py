"""Where PySpark finds the format ``stratalog`` by itself.

Spark looks through all packages named ``pyspark_*`` for a ``DefaultSource``.
"""

from stratalog.pipeline.data_source import StratalogSource as DefaultSource

__all__ = ["DefaultSource"]
