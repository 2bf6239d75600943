"""What a campaign is asked for, refuses and says, before Spark moves a row.

Not covered: the messages themselves (tests/spark/test_campaign.py), who goes when (schedule/).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.limits import GROUP_BYTES_MAX
from dejaqueue.pipelines import campaign as module
from dejaqueue.pipelines.campaign import Options
from dejaqueue.pipelines.frame import Run
from dejaqueue.pipelines.load.series import Load

DAY_MS = 86_400_000
NAMED: dict[str, Any] = {"campaign": "spring", "topic": "mail"}
USUAL = NAMED | {"template": "Hi", "on": "1970-01-03"}


def options(**changed: Any) -> Options:
    return Options.of(USUAL | changed)


def refusal(**changed: Any) -> str:
    with pytest.raises(BadRequest) as refused:
        options(**changed).wanted()
    return str(refused.value)


# --- what is wanted -----------------------------------------------------------------------------


def test_a_day_and_a_time_of_day_are_milliseconds_of_everybodys_own_clock() -> None:
    assert options().wanted().local_ms == 2 * DAY_MS + 9 * 3_600_000
    assert options(on=date(1970, 1, 1), at="00:01").wanted().local_ms == 60_000
    by_column = options(on=None, send_at="when").wanted()
    assert (by_column.send_at, by_column.local_ms) == ("when", 0)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"template": None}, "options: one of --template, --template-file, --payload-columns"),
        ({"payload_columns": "a,b"}, "got: '--template and --payload-columns'"),
        ({"on": None}, "options: one of --on, --send-at, got: 'none of them'"),
        ({"send_at": "when"}, "got: '--on and --send-at'"),
        ({"at": "noon"}, "--at: a time of day like 09:00, got: 'noon'"),
        ({"on": "24.12.2026"}, "--on: a date is like 2026-12-24"),
        ({"template": None, "template_file": "/no/such"}, "--template-file: UTF-8 text"),
        ({"campaign": "ü" * (GROUP_BYTES_MAX // 4 + 1)}, "--campaign: at most"),
        ({"quiet": "late"}, "--quiet"),
        ({"rate": "fast"}, "--rate"),
    ],
)
def test_what_is_wrong_is_named_by_its_option(changed: dict[str, Any], text: str) -> None:
    assert text in refusal(**changed)


def test_a_name_of_just_so_many_bytes_is_fine() -> None:
    assert options(campaign="ü" * (GROUP_BYTES_MAX // 4)).campaign


def test_a_template_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "template"
    file.write_text("Dear {name|reader}")
    found = options(template=None, template_file=str(file)).wanted().template
    assert found == options(template="Dear {name|reader}").wanted().template
    file.write_bytes(b"\xff")
    assert "--template-file: UTF-8 text" in refusal(template=None, template_file=str(file))


# --- a broker that answers as the test says -----------------------------------------------------


class Broker:
    def __init__(self, kind: str = "timeline") -> None:
        self.kind = kind
        self.cancels: list[dict[str, Any]] = []

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *error: object) -> None: ...

    def topic(self, name: str) -> Any:
        return SimpleNamespace(name=name, kind=SimpleNamespace(value=self.kind))

    def cancel_where(self, topic: str, *, dry_run: bool = False, **where: Any) -> int:
        self.cancels.append({"topic": topic, "dry_run": dry_run, **where})
        return 7


class Working:
    """A run that has no Spark to give."""

    clock = SimpleNamespace(now_ms=lambda: 0)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        yield


NO_SPARK = cast(Run, Working())


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(Options, "client", lambda self: broker)
    return broker


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_campaign_is_stopped_by_its_group__and_needs_nothing_else_said(
    broker: Broker, dry_run: bool
) -> None:
    given = Options.of(NAMED | {"stop": True, "dry_run": dry_run})
    told = module.run(given, NO_SPARK).figures
    assert told == {"campaign": "spring", "waiting" if dry_run else "cancelled": 7}
    assert broker.cancels == [{"topic": "mail", "dry_run": dry_run, "group": "spring"}]


@pytest.mark.parametrize(
    ("kind", "changed", "text"),
    [
        ("timeline", {}, "--audience: a table"),
        ("fair", {"audience": "users.csv"}, "--topic: a timeline topic, got: 'mail (fair)'"),
    ],
)
def test_it_is_refused_before_spark_starts(
    broker: Broker, kind: str, changed: dict[str, Any], text: str
) -> None:
    broker.kind = kind
    with pytest.raises(BadRequest) as refused:
        module.run(options(**changed), NO_SPARK)
    assert text in str(refused.value)


# --- the plan -----------------------------------------------------------------------------------


def counted(*zones: str) -> pa.Table:
    rows = len(zones)
    table = {"zone": list(zones), "cell": [10**9] * rows, "bucket": [0] * rows}
    return pa.table(table | {"count": [5] * rows})


def test_rows_that_lack_something_stop_it__unless_they_are_to_be_left_out() -> None:
    with pytest.raises(BadRequest, match="1,234 rows without"):
        module._plan(counted("Europe/Berlin"), 1_234, options(), NO_SPARK)
    skipping = options(missing="skip")
    assert module._plan(counted("Europe/Berlin"), 1_234, skipping, NO_SPARK).load.total == 5


def test_a_zone_that_there_is_not_stops_it__unless_its_rows_are_to_be_left_out() -> None:
    zones = counted("Europe/Berlin", "Mars/Olympus")
    with pytest.raises(BadRequest) as refused:
        module._plan(zones, 0, options(zone="tz"), NO_SPARK)
    assert "column tz, 5 rows" in str(refused.value)
    assert "Mars/Olympus" in str(refused.value)
    assert module._plan(zones, 0, options(missing="skip"), NO_SPARK).unknown == [
        ("Mars/Olympus", 5)
    ]


def test_late_ones_are_sent_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(Working):
        clock = SimpleNamespace(now_ms=lambda: 10**12 + DAY_MS)

    later = cast(Run, Later())
    skipped = module._plan(counted("Europe/Berlin"), 0, options(), later)
    sent = module._plan(counted("Europe/Berlin"), 0, options(late="send"), later)
    assert (skipped.late_count, skipped.load.total) == (5, 0)
    assert (sent.late_count, sent.load.total) == (5, 5)


def test_a_load_is_shown_with_its_peaks__and_nothing_is_shown_of_none() -> None:
    figures = module._load_figures(Load.of(np.array([0, 61, 62]), np.array([3, 2, 2])))
    assert (figures["peak_per_second"], figures["peak_per_minute"]) == (3, 4)
    assert figures["peak_minute"] == "1970-01-01T00:01:00.000Z"
    assert figures["last"] == "1970-01-01T00:01:02.000Z"
    assert module._load_figures(Load.of(np.zeros(0, np.int64), np.zeros(0, np.int64))) == {}
