"""Every metric keeps to Prometheus' naming, so that people can guess names and tools read units.

Not covered: whether it is shown (tests/unit/http/test_exposition.py).
"""

from __future__ import annotations

import re

import pytest

from dejaqueue.http.catalogue import GROUPS, METRICS, Metric

LABELS = {
    *("topic", "kind", "state", "within", "consumer", "op", "status", "outcome", "subscription"),
    *("method", "route", "version", "python", "pyarrow", "server"),
    *("reason", "quota", "principal"),
}


def test_every_metric_is_in_one_group() -> None:
    assert len(METRICS) == sum(len(group) for group in GROUPS.values())


@pytest.mark.parametrize("metric", METRICS.values(), ids=str)
def test_names_units_and_labels(metric: Metric) -> None:
    assert re.fullmatch(r"dejaq_[a-z]+(_[a-z]+)*", metric.name)
    assert not metric.name.endswith(("_total", "_count", "_sum", "_bucket"))
    assert metric.shown_name.endswith("_total") == (metric.type == "counter")
    for unit in ("seconds", "bytes"):
        assert metric.name.endswith(f"_{unit}") == (metric.unit == unit)
    assert set(metric.labels) <= LABELS
    assert "le" not in metric.labels
    assert metric.meaning.strip().rstrip(".")
    assert "\n" not in metric.meaning
