"""Covers: a table becomes a campaign in a topic, by a real Spark: due times, rate, re-runs, stop.

Not covered: how a plan is made (tests/unit/pipelines/schedule), the command line around it
(test_pipelines.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest

import dejaqueue
from dejaqueue.errors import BadRequest, TopicUnknown
from dejaqueue.pipelines import campaign
from dejaqueue.pipelines.frame import Outcome, Run
from dejaqueue.pipelines.frame.progress import Quiet
from tests.crash.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeTopic = Callable[..., str]
DAY = date(2027, 3, 28)  # clocks are set forward in Berlin
ZONES = ["Europe/Berlin", "Asia/Tokyo", "America/New_York"]
USERS = 3_000


@pytest.fixture(scope="module")
def audience(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Users u0 …, in three zones; every seventh has no name."""
    path = tmp_path_factory.mktemp("audience") / "users.parquet"
    numbers = range(USERS)
    table = pa.table(
        {
            "user": [f"u{n}" for n in numbers],
            "name": [None if n % 7 == 0 else f"N{n}" for n in numbers],
            "zone": [ZONES[n % 3] for n in numbers],
            "points": pa.array(numbers, pa.int32()),
        }
    )
    parquet.write_table(table, path, row_group_size=500)
    return path


@pytest.fixture
def go(spark: SparkSession, broker: BrokerProcess) -> Callable[..., Outcome]:
    """Runs a campaign; its options are those of the command line."""

    def run(topic: str, table: Path | None, **given: Any) -> Outcome:
        settings: dict[str, Any] = {
            "url": broker.url,
            "topic": topic,
            "campaign": "spring",
            "audience": None if table is None else str(table),
            "template": "Dear {name|reader}",
        }
        settings |= {"on": DAY} if "send_at" not in given else {}
        options = campaign.Options.of({**settings, **given})
        with Run(spark, progress=Quiet()) as running:
            return campaign.run(options, running)

    return run


def scheduled(client: dejaqueue.Client, topic: str) -> dict[str, dict[str, Any]]:
    rows = client.peek(topic, limit=100_000).to_pylist()
    assert len({row["key"] for row in rows}) == len(rows)
    return {row["key"]: row for row in rows}


def at(day: date, clock: str, zone: str) -> int:
    moment = datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=ZoneInfo(zone))
    return round(moment.timestamp()) * 1_000


def refusal(go: Callable[..., Outcome], topic: str, table: Path | None, **given: Any) -> str:
    with pytest.raises(BadRequest) as refused:
        go(topic, table, **given)
    return str(refused.value)


def test_everybody_gets_it_at_nine_by_their_own_clock(
    go: Callable[..., Outcome], client: dejaqueue.Client, make_topic: MakeTopic, audience: Path
) -> None:
    topic = make_topic()
    figures = go(topic, audience, priority=7, expires_after_ms="2h").figures
    assert (figures["planned"], figures["waiting"], figures["audience"]) == (USERS,) * 3
    found = scheduled(client, topic)
    assert set(found) == {f"spring:u{n}" for n in range(USERS)}
    for number in range(USERS):
        row = found[f"spring:u{number}"]
        assert row["due"] == at(DAY, "09:00", ZONES[number % 3])
        name = "reader" if number % 7 == 0 else f"N{number}"
        assert row["payload"] == f"Dear {name}".encode()
        assert (row["group"], row["priority"]) == ("spring", 7)
    assert figures["first"] == "2027-03-28T00:00:00.000Z"
    assert figures["peak_per_second"] == USERS // 3


def test_again_it_sends_nobody_anything_twice__and_says_who_had_it(
    go: Callable[..., Outcome],
    client: dejaqueue.Client,
    make_topic: MakeTopic,
    audience: Path,
    tmp_path: Path,
) -> None:
    topic = make_topic()
    first = go(topic, audience, rate="100", refusals=str(tmp_path / "refused")).figures
    assert first["rows_OK"] == USERS
    before = scheduled(client, topic)
    figures = go(topic, audience, rate="100", refusals=str(tmp_path / "refused")).figures
    assert (figures["waiting"], figures["rows_DUPLICATE"]) == (USERS, USERS)
    assert "rows_OK" not in figures
    assert scheduled(client, topic) == before
    # Another campaign is another message.
    assert go(topic, audience, campaign="summer").figures["waiting"] == USERS
    assert client.counts(topic, by="group") == {"spring": USERS, "summer": USERS}


def test_the_rate_is_kept_wherever_a_second_begins__and_in_quiet_hours_nothing_goes(
    go: Callable[..., Outcome], client: dejaqueue.Client, make_topic: MakeTopic, audience: Path
) -> None:
    topic, rate = make_topic(), 13
    figures = go(topic, audience, rate=str(rate), quiet="09:01-09:30").figures
    found = scheduled(client, topic)
    assert len(found) == USERS
    dues = np.sort(np.array([row["due"] for row in found.values()]))
    within = np.searchsorted(dues, dues + 1_000) - np.arange(USERS)
    assert within.max() == rate == figures["peak_per_second"]
    assert len(np.unique(dues)) == USERS
    by_zone: dict[str, list[int]] = {zone: [] for zone in ZONES}
    for key, row in found.items():
        zone = ZONES[int(key.removeprefix("spring:u")) % 3]
        by_zone[zone].append(row["due"])
        clock = datetime.fromtimestamp(row["due"] / 1_000, tz=UTC).astimezone(ZoneInfo(zone))
        assert not "09:01" <= f"{clock:%H:%M}" < "09:30"
        assert row["due"] >= at(DAY, "09:00", zone)
    for zone, mine in by_zone.items():
        # 60 seconds until it is quiet, and the rest from its end on; as fast as the rate allows.
        first = [due for due in mine if due < at(DAY, "09:01", zone)]
        assert len(first) == 60 * rate
        assert max(mine) < at(DAY, "09:30", zone) + (len(mine) - len(first)) / rate * 1_000


def test_zones_of_one_wave_are_mixed_evenly(
    go: Callable[..., Outcome],
    client: dejaqueue.Client,
    make_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    path, topic = tmp_path / "two.parquet", make_topic()
    zones = ["Europe/Berlin"] * 1_000 + ["Europe/Paris"] * 1_000
    parquet.write_table(pa.table({"user": [f"u{n}" for n in range(2_000)], "zone": zones}), path)
    go(topic, path, rate="100", template="x")
    rows = sorted(scheduled(client, topic).values(), key=lambda row: row["due"])
    for second in range(20):
        part = rows[100 * second : 100 * second + 100]
        berlin = sum(int(row["key"].removeprefix("spring:u")) < 1_000 for row in part)
        assert 25 <= berlin <= 75


@pytest.mark.parametrize(
    ("day", "clock", "utc"),
    [
        # What does not exist is as long after the gap's beginning; what exists twice is the first.
        ("2027-03-28", "02:30", "2027-03-28T01:30"),
        ("2027-10-31", "02:30", "2027-10-31T00:30"),
    ],
)
def test_local_times_at_changes_of_the_clock(
    go: Callable[..., Outcome],
    client: dejaqueue.Client,
    make_topic: MakeTopic,
    tmp_path: Path,
    day: str,
    clock: str,
    utc: str,
) -> None:
    topic, path = make_topic(), tmp_path / "one.csv"
    path.write_text(f"who,when,tz\nada,{day}T{clock}:00.250,Europe/Berlin\n")
    go(topic, path, user="who", zone="tz", send_at="when", template="x")
    expected = datetime.fromisoformat(utc).replace(tzinfo=UTC) + timedelta(milliseconds=250)
    [row] = scheduled(client, topic).values()
    assert row["due"] == round(expected.timestamp() * 1_000)


def test_each_ones_own_time_and_a_rate__from_csv_as_json(
    go: Callable[..., Outcome], client: dejaqueue.Client, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, path = make_topic(), tmp_path / "users.csv"
    start = datetime(2027, 5, 1, 10)
    table = pa.table(
        {
            "user": [f"u{n}" for n in range(500)],
            "zone": [ZONES[n % 3] for n in range(500)],
            "when": [start + timedelta(milliseconds=1_700 * n) for n in range(500)],
        }
    )
    csv.write_csv(table, path)
    go(topic, path, send_at="when", rate="1", template=None, payload_columns="user,zone")
    dues = {key: row["due"] for key, row in scheduled(client, topic).items()}
    assert len(set(dues.values())) == 500
    assert np.diff(sorted(dues.values())).min() >= 1_000
    for number in range(500):
        moment = start + timedelta(milliseconds=1_700 * number)
        wanted = moment.replace(tzinfo=ZoneInfo(ZONES[number % 3])).timestamp() * 1_000
        # At one a second nobody has to wait longer than the second in which the wish is.
        assert 0 <= dues[f"spring:u{number}"] - wanted <= 1_000
    [row] = client.peek(topic, keys=["spring:u4"]).to_pylist()
    assert row["payload"] == b'{"user":"u4","zone":"Asia/Tokyo"}'


def test_a_dry_run_writes_nothing_and_tells_the_load(
    go: Callable[..., Outcome],
    client: dejaqueue.Client,
    make_topic: MakeTopic,
    audience: Path,
    tmp_path: Path,
) -> None:
    topic, page = make_topic(), tmp_path / "deep" / "page.html"
    figures = go(topic, audience, rate="600/m", dry_run=True, report=str(page)).figures
    assert client.counts(topic) == {} or sum(client.counts(topic).values()) == 0
    assert "waiting" not in figures
    assert (figures["planned"], figures["peak_per_minute"]) == (USERS, 600)
    assert figures["first"] == "2027-03-28T00:00:00.000Z"
    assert figures["last"] == "2027-03-28T13:01:39.000Z"
    assert "Asia/Tokyo" in page.read_text(encoding="utf-8")
    # What was foretold is what is written.
    written = go(topic, audience, rate="600/m").figures
    assert {name: written[name] for name in figures if name in written} | {
        "report": str(page)
    } == dict(figures)
    seconds = Counter(row["due"] // 60_000 for row in scheduled(client, topic).values())
    assert max(seconds.values()) == 600


def test_stop_cancels_the_campaign_and_nothing_else(
    go: Callable[..., Outcome], client: dejaqueue.Client, make_topic: MakeTopic, audience: Path
) -> None:
    topic = make_topic()
    go(topic, audience)
    go(topic, audience, campaign="summer")
    assert go(topic, None, stop=True, dry_run=True).figures["waiting"] == USERS
    assert go(topic, None, stop=True).figures == {"campaign": "spring", "cancelled": USERS}
    assert client.counts(topic, by="group") == {"summer": USERS}


def test_who_is_late_is_left_out__or_sent_now(
    go: Callable[..., Outcome], client: dejaqueue.Client, make_topic: MakeTopic, audience: Path
) -> None:
    topic, past = make_topic(), date(2026, 1, 1)
    figures = go(topic, audience, on=past).figures
    assert (figures["late"], figures["planned"], figures["late_are"]) == (USERS, 0, "skipped")
    assert "waiting" not in figures
    figures = go(topic, audience, on=past, late="send", rate="1").figures
    assert (figures["late"], figures["planned"], figures["waiting"]) == (USERS,) * 3
    assert len(scheduled(client, topic)) == USERS


def test_incomplete_rows_stop_a_campaign__or_are_left_out(
    go: Callable[..., Outcome], client: dejaqueue.Client, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, path = make_topic(), tmp_path / "holes.parquet"
    table = pa.table(
        {
            "user": ["a", None, "", "d", "e", "f"],
            "name": ["A", "B", "C", None, "E", "F"],
            "zone": ["UTC", "UTC", "UTC", "UTC", None, "Mars/Base"],
        }
    )
    parquet.write_table(table, path)
    assert "4 rows without" in refusal(go, topic, path, template="{name}")
    assert "2 rows without" in refusal(go, topic, path, template="x", zone_default="UTC")
    other = tmp_path / "zones.parquet"
    parquet.write_table(table.slice(5), other)
    assert "column zone, 1 rows: IANA time zones" in refusal(go, topic, other, template="x")
    figures = go(topic, path, template="{name}", missing="skip").figures
    assert (figures["audience"], figures["incomplete"], figures["planned"]) == (6, 5, 1)
    assert set(scheduled(client, topic)) == {"spring:a"}
    given = go(topic, path, template="{name}", missing="skip", zone_default="UTC").figures
    assert given["planned"] == 2


def test_wrong_calls_are_told_by_their_names(
    go: Callable[..., Outcome], make_topic: MakeTopic, audience: Path, tmp_path: Path
) -> None:
    topic = make_topic()
    said = refusal(go, topic, audience, template="{nam}")
    assert said.startswith("--template: {nam}: a column of the audience (user, name, zone, points)")
    assert refusal(go, topic, audience, user="id").startswith("--user: a column of the audience")
    assert refusal(go, topic, audience, zone="tz").startswith("--zone: a column")
    assert refusal(go, topic, audience, send_at="when").startswith("--send-at: a column")
    assert "--payload-columns" in refusal(go, topic, audience, payload_columns="name")
    assert refusal(go, topic, None).startswith("--audience: a table")
    assert "none of them" in refusal(go, topic, audience, on=None)
    assert refusal(go, topic, audience, rate="0").startswith("--rate: a rate is like 500")
    assert refusal(go, topic, audience, quiet="8").startswith("--quiet: quiet hours are like")
    assert refusal(go, topic, audience, at="9").startswith("--at: a time of day")
    assert refusal(go, topic, audience, on="1.3.2027").startswith("--on: a date is like")
    assert refusal(go, topic, audience, campaign="x" * 200).startswith("--campaign: at most 128")
    assert "a timeline topic" in refusal(go, make_topic(kind="priority"), audience)
    with pytest.raises(TopicUnknown):
        go("nowhere", audience)
    long = tmp_path / "long.parquet"
    parquet.write_table(pa.table({"user": ["x" * 300], "zone": ["UTC"]}), long)
    assert refusal(go, topic, long, template="x").startswith("column user: at most 256 bytes")
