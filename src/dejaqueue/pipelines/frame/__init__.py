"""What every pipeline stands in: typed options, a Spark session, progress, a result, exit codes.

A pipeline is one file, `pipelines/NAME.py`:

    class Options(PipelineOptions):
        topic: Topic = Field(description="Whose messages.")
        ahead_ms: Span = Field(default="24h", validate_default=True, description="How far to look.")

    def run(options: Options, run: Run) -> Outcome:
        '''What it does, in one sentence: the help's first line.'''
        with run.step("counting"):
            reader = run.spark.read.format("dejaq").options(**options.source_options())
            count = reader.load(options.topic).count()
        return Outcome({"messages": count})

    PIPELINE = Pipeline("NAME", Options, run)
    if __name__ == "__main__":
        main(PIPELINE)

Room: pipelines.
See: options.py, pipeline.py, session.py, progress.py, failures.py, command.py.
"""

from __future__ import annotations

from dejaqueue.pipelines.frame.command import main, make_command
from dejaqueue.pipelines.frame.options import (
    Instant,
    Names,
    PipelineOptions,
    Shown,
    Span,
    Topic,
)
from dejaqueue.pipelines.frame.pipeline import Outcome, Pipeline, Run

__all__ = [
    "Instant",
    "Names",
    "Outcome",
    "Pipeline",
    "PipelineOptions",
    "Run",
    "Shown",
    "Span",
    "Topic",
    "main",
    "make_command",
]
