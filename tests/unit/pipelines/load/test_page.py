"""The page of a forecast says what is needed, and needs nothing itself."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from dejaqueue.pipelines.load.capacity import advise
from dejaqueue.pipelines.load.page import Forecast, write_report
from dejaqueue.pipelines.load.series import HOUR_MS, Load
from tests.unit.report.test_page import check_page

LOAD = Load.of(np.array([0, 1, 90_000]), np.array([3, 5_000, 2]))


@pytest.mark.parametrize("load", [LOAD, Load.of(LOAD.seconds[:0], LOAD.counts[:0])])
@pytest.mark.parametrize("hours", [1, 48])
def test_the_page_is_whole(load: Load, hours: int, tmp_path: Path) -> None:
    advice = advise(load, 1_000, 1_000, 2_000)
    found = Forecast("<topic>", 2, load, [(1_000, 5_000, 12)], advice, 1_000)
    path = tmp_path / "deep" / "page.html"
    write_report(path, found, 0, hours * HOUR_MS, {"due": load.total})
    text = path.read_text(encoding="utf-8")
    check_page(text)
    assert "<topic>" not in text
    assert ("By hour of the day" in text) == (hours > 24)
    if load.total:
        assert re.search(r"takes 5 consumers.*3 partitions", text)
        assert "5,000" in text
