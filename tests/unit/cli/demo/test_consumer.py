"""A consumer of the demo: what it notes of a delivery, what it says. As a process: tests/cli."""

from __future__ import annotations

import io
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import dejaqueue
from dejaqueue.cli.demo import consumer as module
from dejaqueue.cli.demo.consumer import RECEIVED, Consumption, main
from dejaqueue.clock import Wake
from dejaqueue.errors import Unavailable
from dejaqueue.model import RowStatus


class Batch:
    """A delivery of rows named by letters; acked as the test says."""

    def __init__(self, names: str, statuses: list[RowStatus] | None = None) -> None:
        self.batch = pa.record_batch(
            {
                "key": list(names),
                "due": pa.array([ord(name) for name in names], pa.int64()),
                "attempts": pa.array([1] * len(names), pa.uint16()),
                "payload": pa.array([name.encode() for name in names], pa.binary()),
            }
        )
        self._statuses = statuses
        self.waits: list[bool] = []

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def ack(self, *, wait: bool = True) -> Any:
        self.waits.append(wait)
        if not wait:
            return None
        if self._statuses is None:
            raise Unavailable("the broker died")
        return SimpleNamespace(statuses=np.array(self._statuses))


def take(consumption: Consumption, batch: Batch, received_us: int) -> Batch:
    consumption.take(cast(Any, batch), received_us)
    return batch


def test_what_came_is_noted_with_its_time__row_by_row() -> None:
    consumption = Consumption(confirm=False)
    assert consumption.to_table().schema == RECEIVED
    assert take(consumption, Batch("ab"), 7).waits == [False]
    take(consumption, Batch("c"), 9)
    table = consumption.to_table()
    assert (table.schema, consumption.count) == (RECEIVED, 3)
    assert table["key"].to_pylist() == ["a", "b", "c"]
    assert table["due"].to_pylist() == [97, 98, 99]
    assert table["received_us"].to_pylist() == [7, 7, 9]
    assert table["acked"].to_pylist() == [True] * 3


def test_where_acks_are_confirmed__those_count_that_the_broker_said_are_durable() -> None:
    consumption = Consumption(confirm=True)
    ok, lost = RowStatus.OK, RowStatus.LEASE_LOST
    assert take(consumption, Batch("ab", [ok, lost]), 1).waits == [True]
    take(consumption, Batch("cd"), 2)
    take(consumption, Batch("e", [ok]), 3)
    assert consumption.to_table()["acked"].to_pylist() == [True, False, False, False, True]


def test_the_count_is_said_once_more_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    consumption, wake = Consumption(confirm=False), Wake()
    consumption.count = 5
    wake.ring()
    module._say_counts(consumption, wake)
    assert capsys.readouterr().out == "5\n"


class Client:
    """A client whose consumer has two deliveries, and ends when it is closed."""

    def __init__(self, url: str) -> None:
        self.closed = threading.Event()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None: ...

    def connect(self) -> None: ...

    def consume_batches(self, topic: str, **more: Any) -> Any:
        assert topic == "t"
        return self

    def __iter__(self) -> Any:
        yield from (Batch("ab"), Batch("c"))
        assert self.closed.wait(20), "nobody closed it"

    def close(self) -> None:
        self.closed.set()


def test_it_begins_when_it_is_told__and_writes_what_came_when_its_input_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dejaqueue, "Client", Client)
    interval = sys.getswitchinterval()
    out = tmp_path / "out.arrow"
    words = ["--url", "dejaq://h", "--topic", "t", "--out", str(out)]
    try:
        found = CliRunner().invoke(
            main, words, input=io.BytesIO(b"begin\n"), catch_exceptions=False
        )
    finally:
        sys.setswitchinterval(interval)
    lines = found.stdout.splitlines()
    assert (lines[0], lines[-1]) == ("ready", "3")
    with pa.OSFile(str(out)) as file, pa.ipc.open_file(file) as reader:
        assert reader.read_all()["key"].to_pylist() == ["a", "b", "c"]
