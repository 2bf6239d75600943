"""The page of a campaign: each zone in its turn, late ones marked. Charts: tests/unit/report."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from dejaqueue.pipelines.schedule import page as module
from dejaqueue.pipelines.schedule.page import write_report
from dejaqueue.pipelines.schedule.plan import Plan, Timing, make_plan
from tests.unit.report.test_page import check_page

NINE = 1_800_000_000 // 86_400 * 86_400 + 9 * 3_600
Row = tuple[str, int, int]


def plan(*rows: Row, now_ms: int = 0) -> Plan:
    columns = {"zone": 0, "cell": 1, "count": 2}
    table = {name: [row[place] for row in rows] for name, place in columns.items()}
    schema = {"zone": pa.utf8(), "cell": pa.int64(), "count": pa.int64()}
    counted = pa.table({name: pa.array(table[name], kind) for name, kind in schema.items()})
    buckets = pa.array([0] * len(rows), pa.int64())
    return make_plan(counted.append_column("bucket", buckets), Timing(None, None, now_ms, False))


def page(tmp_path: Path, found: Plan, **figures: object) -> str:
    path = tmp_path / "deep" / "page.html"
    write_report(path, "<spring>", found, figures)
    text = path.read_text(encoding="utf-8")
    check_page(text)
    assert "<spring>" not in text
    return text


def test_zones_are_shown_with_their_messages_and_their_first_instant(tmp_path: Path) -> None:
    found = plan(
        ("Asia/Tokyo", NINE, 2), ("Europe/London", NINE, 3_000), ("Asia/Tokyo", NINE + 1, 5)
    )
    text = page(tmp_path, found, planned=3_007)
    assert "&lt;spring&gt;: 3,007 messages" in text
    assert "In 2 time zones, from 2027-01-15T00:00:00.000Z to 2027-01-15T09:00:00.000Z" in text
    assert text.index("Europe/London") < text.index("Asia/Tokyo")
    assert ">3,000<" in text, "the fullest second"
    assert "planned" in text


def test_late_ones_are_marked_as_bad(tmp_path: Path) -> None:
    on_time = page(tmp_path, plan(("Asia/Tokyo", NINE, 2)))
    late = page(tmp_path, plan(("Asia/Tokyo", NINE, 2), now_ms=(NINE + 1) * 1_000))
    assert 'class="tile bad"' in late
    assert 'class="tile bad"' not in on_time


def test_a_campaign_of_nobody_has_a_page_without_a_chart(tmp_path: Path) -> None:
    text = page(tmp_path, plan())
    assert "0 messages" in text
    assert "<svg" not in text


def test_so_many_zones_are_shown_and_no_more(tmp_path: Path) -> None:
    zones = [f"Etc/GMT{sign}{hours}" for sign in "+-" for hours in range(1, 13)]
    found = plan(*((zone, NINE, 100 - place) for place, zone in enumerate(zones)))
    assert zones[-1] in page(tmp_path, found)
    before, module.ZONES_MAX = module.ZONES_MAX, len(zones) - 1
    try:
        assert zones[-1] not in page(tmp_path, found)
    finally:
        module.ZONES_MAX = before
