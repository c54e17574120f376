"""The format ``stratalog`` of Spark. Needs PySpark to be imported."""

from stratalog.pipeline.data_source.data_source import StratalogSource, register
