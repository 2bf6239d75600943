"""Reports of writes are kept by sender, label and epoch, the last few of them."""

from __future__ import annotations

from typing import Any

from dejaqueue.broker.topic.write_reports import REPORTS_MAX, WriteReports


def report(label: str, epoch: int = -1, **more: Any) -> dict[str, Any]:
    return {"label": label, "epoch": epoch, **more}


def test_a_report_of_the_same_write_takes_the_place_of_the_one_before__as_the_newest() -> None:
    reports = WriteReports()
    reports.add("shop", report("a", rows=1))
    reports.add("shop", report("b"))
    reports.add("shop", report("a", rows=2))
    reports.add("bank", report("a", rows=3))
    assert reports.find("shop", "") == [report("b"), report("a", rows=2)]
    assert reports.find(None, "a") == [report("a", rows=2), report("a", rows=3)]


def test_the_oldest_goes_first() -> None:
    reports = WriteReports()
    for epoch in range(REPORTS_MAX + 1):
        reports.add("shop", report("a", epoch))
    kept = reports.find("shop", "a")
    assert [one["epoch"] for one in kept] == list(range(1, REPORTS_MAX + 1))
