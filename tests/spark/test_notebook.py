"""Covers: the notebook about a campaign runs on a real Spark, and shows what it is kept with.

Not covered: the other notebooks (tests/docs/test_notebooks.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.broker_process import BrokerProcess
from tests.docs import notebooks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATH = notebooks.ROOT / "examples/notebooks/campaign-with-spark.ipynb"


def test_the_notebook_shows_what_it_is_kept_with(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = notebooks.load(PATH)
    shown = notebooks.run(notebook, PATH.name, broker.url)
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert notebooks.with_outputs(notebook, shown) == notebook, (
        f"python -m tests.docs.notebooks {PATH.stem}"
    )
