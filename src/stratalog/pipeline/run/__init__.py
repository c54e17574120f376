"""All jobs over a herd, one after the other, and the report of a run."""

from stratalog.pipeline.run.html_report import html_of
from stratalog.pipeline.run.run import run_forever, run_pipeline
from stratalog.pipeline.run.run_report import OnEvent, RunEvent, RunReport, Stage, StageReport
from stratalog.pipeline.run.stages import RunOptions
