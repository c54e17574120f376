"""The outputs of a job: written by tasks, published log by log, read as DataFrames."""

from stratalog.pipeline.outputs.files import FILE_BYTES, FILES, Target, write_files
from stratalog.pipeline.outputs.output import OUTPUT, Output, OutputFile, decode_output, folder_of
from stratalog.pipeline.outputs.publish import Outputs, OutputState, load_output, tidy_outputs
from stratalog.pipeline.outputs.read import (
    FileSplit,
    contents_of,
    frame_of_outputs,
    read_output,
    splits_of,
)
from stratalog.pipeline.outputs.sizes import HerdSize, LogSize, bytes_of, measure_herd
