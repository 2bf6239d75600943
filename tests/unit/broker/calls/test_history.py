"""Covers: what can be asked of a file of history, and which of its rows come.

Not covered: recording, and listing of what brokers of a cluster have (tests/rules/test_history.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dejaqueue import limits
from dejaqueue.broker.calls.history import (
    STRETCHES_MAX,
    gaps_in,
    list_files,
    parse,
    read,
    wants_here,
)
from dejaqueue.broker.history.files import Files, HistoryFile
from dejaqueue.errors import BadRequest, Refused, Unavailable
from dejaqueue.schema.history import HISTORY, STORED
from tests.rules.broker_fixture import TOPIC, BrokerFixture


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[BrokerFixture]:
    made = BrokerFixture(tmp_path / "journal", history=True)
    yield made
    made.stop()


def recorded(fixture: BrokerFixture, count: int = 4) -> tuple[Files, dict[str, Any]]:
    """The files of a broker, and the one that has `count` messages, one entry each."""
    for number in range(count):
        fixture.send([b"%d" % number])
        fixture.advance(1_000)
    listed = list_files(fixture.broker.history, fixture.broker.runtime(TOPIC), {"name": TOPIC})[
        "files"
    ]
    [file] = listed
    return fixture.broker.history.files, file


def rows(files: Files, file: dict[str, Any], **values: Any) -> list[dict[str, Any]]:
    ticket = parse(files, TOPIC, {"file": file["name"]} | values)
    return [row for batch in read(TOPIC, ticket) for row in batch.to_pylist()]


# --- what can be asked


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("file", None),
        ("file", 5),
        ("file", "../../keys"),
        ("partition", -1),
        ("partition", limits.PARTITIONS_MAX),
        ("columns", "at_ms"),
        ("columns", ["at_ms", "colour"]),
        ("at_from", -1),
        ("at_to", "now"),
        ("positions", [5]),
        ("positions", [[1, 2, 3]]),
        ("positions", [[-1, 2]]),
        ("positions", [[1, True]]),
        ("positions", [[1, 1]] * (STRETCHES_MAX + 1)),
        ("gaps", 5),
        ("gaps", [-1]),
        ("gaps", [1] * (STRETCHES_MAX + 1)),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_bad_field_is_refused_by_name(tmp_path: Path, field: str, value: Any) -> None:
    name = _name_of(tmp_path)
    with pytest.raises(BadRequest) as caught:
        parse(Files(tmp_path), TOPIC, {"file": name, field: value})
    assert caught.value.field == field


def _name_of(directory: Path) -> str:
    """The name of a file that there may be."""
    files = Files(directory)
    path = files.open_path(TOPIC, 0, 1)
    path.write_bytes(b"")
    files.finish(path, TOPIC, 0, 0, 1, 2, has_gaps=False)
    [found] = files.find(TOPIC, 0, 1 << 60)
    return found.name


def test_columns_come_in_their_own_order(tmp_path: Path) -> None:
    values = {"file": _name_of(tmp_path), "columns": ["topic", "at_ms"]}
    names = [name for name in HISTORY.names if name in values["columns"]]
    ticket = parse(Files(tmp_path), TOPIC, values)
    assert ticket.schema.names == names
    assert parse(Files(tmp_path), TOPIC, values | {"columns": None}).schema == HISTORY


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_only_true_asks_this_broker_alone(value: object) -> None:
    assert not wants_here({})
    assert wants_here({"here": True})
    with pytest.raises(BadRequest, match=r"^here: "):
        wants_here({"here": value})


# --- which rows come


def test_a_file_has_what_happened__with_topic_and_partition(fixture: BrokerFixture) -> None:
    files, file = recorded(fixture)
    found = rows(files, file)
    sent = [row for row in found if row["change"] == "enqueued"]
    assert len(sent) == 4
    assert {(row["topic"], row["partition"]) for row in found} == {(TOPIC, 0)}
    assert [row["position"] for row in found] == sorted(row["position"] for row in found)


def test_a_stretch_of_time_has_its_beginning_and_not_its_end(fixture: BrokerFixture) -> None:
    files, file = recorded(fixture)
    times = [row["at_ms"] for row in rows(files, file) if row["change"] == "enqueued"]
    found = rows(files, file, at_from=times[1], at_to=times[3])
    assert [row["at_ms"] for row in found] == times[1:3]
    assert rows(files, file, at_from=times[-1] + 1) == []


def test_stretches_of_positions_have_both_their_ends(fixture: BrokerFixture) -> None:
    files, file = recorded(fixture)
    positions = [row["position"] for row in rows(files, file)]
    chosen = [[positions[0], positions[0]], [positions[2], positions[3]]]
    found = rows(files, file, positions=chosen, columns=["position"])
    assert [row["position"] for row in found] == [positions[0], *positions[2:4]]
    assert rows(files, file, positions=[]) == []


def test_columns_that_are_not_asked_for_are_not_in_the_answer(fixture: BrokerFixture) -> None:
    files, file = recorded(fixture)
    for columns in (["topic"], ["partition", "change"], []):
        [batch] = read(TOPIC, parse(files, TOPIC, {"file": file["name"], "columns": columns}))
        assert set(batch.schema.names) == set(columns or ["at_ms"])
        assert batch.num_rows == len(rows(files, file))


def test_a_file_that_was_pruned_is_no_empty_one(fixture: BrokerFixture) -> None:
    files, file = recorded(fixture)
    ticket = parse(files, TOPIC, {"file": file["name"]})
    ticket.path.unlink()
    with pytest.raises(Refused, match="is gone: it was too old"):
        list(read(TOPIC, ticket))


def test_a_file_that_cannot_be_read_is_said_by_name(fixture: BrokerFixture) -> None:
    files, file = recorded(fixture)
    ticket = parse(files, TOPIC, {"file": file["name"]})
    ticket.path.write_bytes(b"no parquet")
    with pytest.raises(Unavailable, match=rf"history file {ticket.path.name} can't be read"):
        list(read(TOPIC, ticket))


# --- gaps


def gapped(directory: Path, changes: list[tuple[str, int]]) -> tuple[Files, HistoryFile]:
    """A file with these changes and their positions; its first position is 3."""
    files = Files(directory)
    path = files.open_path(TOPIC, 0, 3)
    columns: dict[str, pa.Array] = {}
    for field in STORED:
        if field.name == "change":
            values = pa.array([change for change, _ in changes], pa.utf8())
        elif field.name == "position":
            values = pa.array([position for _, position in changes], pa.int64())
        elif field.name == "at_ms":
            values = pa.array([0] * len(changes), pa.int64())
        else:
            values = pa.nulls(len(changes), field.type)
        columns[field.name] = values
    pq.write_table(pa.table(columns), path)
    files.finish(path, TOPIC, 0, 0, 3, changes[-1][1], has_gaps=True)
    [file] = files.find(TOPIC, 0, 1 << 60)
    return files, file


def test_a_gap_lies_between_the_row_before_and_its_own(tmp_path: Path) -> None:
    files, file = gapped(tmp_path, [("gap", 5), ("enqueued", 6), ("acked", 7), ("gap", 9)])
    assert gaps_in(files, TOPIC, file) == [(3, 5), (8, 9)]


def test_only_the_gaps_that_are_chosen_come(tmp_path: Path) -> None:
    files, file = gapped(tmp_path, [("gap", 5), ("enqueued", 6), ("gap", 9)])
    values = {"file": file.name, "columns": ["change", "position"]}

    def places(**more: Any) -> list[int]:
        ticket = parse(files, TOPIC, values | more)
        return [row["position"] for batch in read(TOPIC, ticket) for row in batch.to_pylist()]

    assert places(gaps=[9]) == [6, 9]
    assert places(gaps=[]) == [6]
    assert places(positions=[[9, 9]], gaps=[5]) == [5]


def test_gaps_of_a_file_that_was_pruned_meanwhile_are_none(tmp_path: Path) -> None:
    files, file = gapped(tmp_path, [("gap", 5)])
    path = files.path_of(TOPIC, 0, file.name)
    assert path is not None
    path.unlink()
    assert gaps_in(files, TOPIC, file) == []
