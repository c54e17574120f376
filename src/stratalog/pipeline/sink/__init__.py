"""Writing rows into a log: all of a batch or none of it, and once."""

from stratalog.pipeline.sink.data_sink import BatchSink, StreamSink, target_of
