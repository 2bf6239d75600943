"""The plan of a campaign: cells become instants, waves and slots; nobody twice, nobody left out."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.pipelines.schedule.plan import Plan, Timing, check_cells, make_plan
from dejaqueue.pipelines.schedule.quiet_hours import QuietHours
from dejaqueue.pipelines.schedule.stagger import Rate

BERLIN, PARIS, TOKYO, LAGOS = "Europe/Berlin", "Europe/Paris", "Asia/Tokyo", "Africa/Lagos"
Row = tuple[str, int, int, int]


def utc(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


NINE = utc("2027-03-01T09:00") // 1_000


def timing(**changed: object) -> Timing:
    settings = {"quiet": None, "rate": None, "now_ms": 0, "sends_late": False}
    return Timing(**(settings | changed))  # type: ignore[arg-type]


def counted(*rows: Row) -> pa.Table:
    names = ["zone", "cell", "bucket", "count"]
    return pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})


def plan(*rows: Row, **changed: object) -> Plan:
    return make_plan(counted(*rows), timing(**changed))


def slots_of(found: Plan) -> list[tuple[int, int, int]]:
    """(wave, bucket, slot) of every message, by the table of parts."""
    return [
        (part["wave"], part["bucket"], part["first_slot"] + rank - part["first_rank"])
        for part in found.parts.to_pylist()
        for rank in range(part["first_rank"], part["last_rank"])
    ]


def test_nine_in_the_morning_is_at_each_ones_own_time() -> None:
    found = plan((TOKYO, NINE, 0, 2), (BERLIN, NINE, 0, 3), (BERLIN, NINE + 1, 0, 1))
    assert [(row["zone"], row["base_ms"], row["keeps"]) for row in found.cells.to_pylist()] == [
        (TOKYO, utc("2027-03-01T00:00"), 1),
        (BERLIN, utc("2027-03-01T08:00"), 1),
        (BERLIN, utc("2027-03-01T08:00:01"), 1),
    ]
    assert found.load.total == 6
    assert found.by_zone == [
        (BERLIN, 4, utc("2027-03-01T08:00")),
        (TOKYO, 2, utc("2027-03-01T00:00")),
    ]
    assert set(found.cells["wave"].to_pylist()) == {-1}
    assert found.parts.num_rows == 0


def test_zones_of_one_instant_are_one_wave__unless_their_nights_differ() -> None:
    rows = [(zone, NINE, 0, 10) for zone in (BERLIN, PARIS, LAGOS)]
    together = plan(*rows, rate=Rate(5))
    assert set(together.cells["wave"].to_pylist()) == {0}
    # In summer Lagos has another clock, and so other quiet hours.
    apart = plan(*rows, rate=Rate(5), quiet=QuietHours.parse("21:00-08:00"))
    waves = {row["zone"]: row["wave"] for row in apart.cells.to_pylist()}
    assert waves[BERLIN] == waves[PARIS] != waves[LAGOS]
    assert apart.load.total == 30


def test_every_row_of_every_bucket_has_a_slot_of_its_own() -> None:
    rng = np.random.default_rng(5)
    rows: list[Row] = [
        (zone, NINE + second, bucket, int(rng.integers(1, 40)))
        for zone in (BERLIN, TOKYO, LAGOS)
        for second in (0, 1, 30)
        for bucket in range(4)
    ]
    quiet = QuietHours.parse("09:00:20-09:01")
    found = plan(*rows, rate=Rate(7), quiet=quiet)
    given = slots_of(found)
    assert len({slot for _, _, slot in given}) == len(given) == sum(row[3] for row in rows)
    bases = {row["wave"]: row["base_ms"] for row in found.cells.to_pylist()}
    for wave, _, slot in given:
        assert slot * 1_000 // 7 >= bases[wave]
    waves = {(row["zone"], row["cell"]): row["wave"] for row in found.cells.to_pylist()}
    wanted: dict[tuple[int, int], int] = {}
    for zone, cell, bucket, count in rows:
        place = waves[zone, cell], bucket
        wanted[place] = wanted.get(place, 0) + count
    got: dict[tuple[int, int], int] = {}
    for wave, bucket, _ in given:
        got[wave, bucket] = got.get((wave, bucket), 0) + 1
    assert got == wanted
    # The buckets' ranks begin at 0 and have no hole.
    for wave, bucket in wanted:
        parts = [p for p in found.parts.to_pylist() if (p["wave"], p["bucket"]) == (wave, bucket)]
        ends = [0, *(part["last_rank"] for part in parts)]
        assert [part["first_rank"] for part in parts] == ends[:-1]
        assert ends[-1] == wanted[wave, bucket]
    assert found.load.total == len(given)


def test_a_wave_goes_on_the_next_day_when_its_evening_ends() -> None:
    # 20:00 to 21:00 has 3,600 seconds; the rest is sent from 08:00 on.
    evening = utc("2027-03-01T20:00") // 1_000
    found = plan((BERLIN, evening, 0, 4_000), rate=Rate(1), quiet=QuietHours.parse("21:00-08:00"))
    dues_ms = sorted(slot * 1_000 for _, _, slot in slots_of(found))
    assert dues_ms[0] == utc("2027-03-01T19:00")
    assert dues_ms[3_599] == utc("2027-03-01T19:59:59")
    assert dues_ms[3_600] == utc("2027-03-02T07:00")
    assert dues_ms[-1] == utc("2027-03-02T07:06:39")


def test_what_is_late_is_left_out_or_sent_from_now_on() -> None:
    now_ms = utc("2027-03-01T03:00")
    rows = [(TOKYO, NINE, 0, 2), (BERLIN, NINE, 0, 3)]
    left = plan(*rows, now_ms=now_ms)
    assert (left.load.total, left.late_count) == (3, 2)
    assert left.cells["zone"].to_pylist() == [BERLIN]
    sent = plan(*rows, now_ms=now_ms, sends_late=True)
    assert (sent.load.total, sent.late_count) == (5, 2)
    bases = {row["zone"]: (row["base_ms"], row["keeps"]) for row in sent.cells.to_pylist()}
    assert bases == {TOKYO: (now_ms, 0), BERLIN: (utc("2027-03-01T08:00"), 1)}
    # 03:00 is noon in Tokyo, which is quiet here.
    quiet = QuietHours.parse("12:00-13:00")
    waits = plan(*rows, now_ms=now_ms, sends_late=True, quiet=quiet)
    assert waits.load.first_ms == utc("2027-03-01T04:00")


def test_zones_that_there_are_not_are_counted_and_left_out() -> None:
    found = plan((BERLIN, NINE, 0, 1), ("Mars/Base", NINE, 0, 2), ("Mars", NINE, 0, 7))
    assert found.unknown == [("Mars", 7), ("Mars/Base", 2)]
    assert found.cells["zone"].to_pylist() == [BERLIN]
    assert found.load.total == 1


def test_the_same_counts_in_another_order_give_the_same_plan() -> None:
    rows = [(zone, NINE + second, 0, 5) for zone in (BERLIN, TOKYO) for second in range(3)]
    first, second = plan(*rows, rate=Rate(2)), plan(*reversed(rows), rate=Rate(2))
    assert first.cells.equals(second.cells)
    assert first.parts.equals(second.parts)


def test_nobody_makes_an_empty_plan() -> None:
    for rate in (None, Rate(5)):
        empty = counted().cast(
            pa.schema(
                [("zone", pa.utf8()), *((n, pa.int64()) for n in ("cell", "bucket", "count"))]
            )
        )
        found = make_plan(empty, timing(rate=rate))
        assert (found.load.total, found.cells.num_rows, found.parts.num_rows) == (0, 0, 0)


def test_more_cells_than_a_driver_can_plan_are_refused() -> None:
    check_cells(10, 10)
    with pytest.raises(BadRequest, match="round it to minutes"):
        check_cells(11, 10)
