"""Pipelines: programs for Spark around a broker, each with options of its own.

    dejaq pipeline campaign --help            from the command line
    python -m dejaqueue.pipelines.campaign    without it
    spark-submit …/pipelines/campaign.py      on a cluster
    campaign.run(Options(...), Run())         from a program

Room: pipelines. Stands on the client and on the data source; knows nothing of the broker's inside.
Every plain module of this folder is a pipeline, and there is no list to keep: `PIPELINE` in it says
what it is. What pipelines share, or what one of them is made of, is in packages beside them.
Holds: pyspark is imported in functions only, as help must work without it.
See: frame/ (options, Spark sessions, progress, exit codes), docs/guides/pipelines.md.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # tidy: allow type-import, because a list of names loads no pipeline
    from dejaqueue.pipelines.frame.pipeline import Pipeline


def names() -> list[str]:
    """The pipelines there are."""
    return sorted(found.name for found in pkgutil.iter_modules(__path__) if not found.ispkg)


def find(name: str) -> Pipeline[Any]:
    """The pipeline of this name, one of `names()`."""
    pipeline: Pipeline[Any] = importlib.import_module(f"{__name__}.{name}").PIPELINE
    return pipeline
