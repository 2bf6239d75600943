"""The bound, the thread and the directory of a broker's history. Recording: tests/rules."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dejaqueue.broker.history.history import PRUNE_MS, History, directory_of
from dejaqueue.errors import BadRequest
from dejaqueue.settings import BrokerSettings, HistorySettings
from dejaqueue.testing.virtual_clock import VirtualClock


def made(directory: Path | None, **more: int) -> History:
    return History(directory, HistorySettings(**more), VirtualClock(), ThreadPoolExecutor(1))  # type: ignore[arg-type]


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    history = made(tmp_path / "history", waiting_rows_max=1_000)
    yield history
    history.close()


@pytest.mark.parametrize(
    ("url", "directory", "expected"),
    [
        ("segment:///var/q", "", "/var/q/history"),
        ("/var/q", "", "/var/q/history"),
        ("memory://", "", None),
        ("nats://h", "", None),
        ("memory://", "/other", "/other"),
    ],
)
def test_history_lies_beside_the_journal__or_where_it_is_told(
    url: str, directory: str, expected: str | None
) -> None:
    settings = BrokerSettings.model_validate(
        {"journal": {"url": url}, "history": {"directory": directory}}
    )
    assert directory_of(settings) == (None if expected is None else Path(expected))


def test_a_topic_cannot_have_a_history_that_has_no_place() -> None:
    history = made(None)
    history.check(False)
    with pytest.raises(BadRequest, match="needs history.directory"):
        history.check(True)
    assert not history.is_mine("t")
    history.close()


def test_what_waits_is_bounded__but_one_crowd_alone_is_let_in(history: History) -> None:
    assert history.has_room(5_000)
    history.waiting_rows = 400
    assert (history.has_room(600), history.has_room(601)) == (True, False)
    assert not history.is_crowded
    history.waiting_rows = 501
    assert history.is_crowded


def test_all_recorders_that_live_are_to_encode(history: History) -> None:
    class Recorder:
        def __init__(self, name: str) -> None:
            self.name = name

        def encode(self) -> None:
            encoded.append(self.name)

    encoded: list[str] = []
    first, second = Recorder("a"), Recorder("b")
    history.add(first)
    history.add(second)
    history.encode_all()
    assert sorted(encoded) == ["a", "b"]
    del second
    history.encode_all()
    assert sorted(encoded) == ["a", "a", "b"]


def test_a_step_that_fails_is_logged__and_the_next_goes_on(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    ran = []
    history.submit(lambda: 1 // 0)
    history.submit(lambda: ran.append(1))
    history.settle()
    assert ran == [1]
    assert "history: a step broke off" in caplog.text


def test_old_files_are_looked_for_now_and_then__also_when_the_clock_went_back(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    pruned: list[int] = []
    monkeypatch.setattr(history.files, "prune", pruned.append)
    retention_ms = history.settings.retention_ms
    begin_ms = 10**12
    for now_ms in (0, PRUNE_MS - 1, PRUNE_MS, PRUNE_MS + 1, -PRUNE_MS):
        history.prune_if_due(begin_ms + now_ms)
    history.settle()
    assert [ms + retention_ms - begin_ms for ms in pruned] == [0, PRUNE_MS, -PRUNE_MS]


def test_nothing_is_deleted_where_files_stay_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = made(tmp_path, retention_ms=0)
    pruned: list[int] = []
    monkeypatch.setattr(history.files, "prune", pruned.append)
    history.prune_if_due(10**12)
    history.close()
    assert pruned == []
