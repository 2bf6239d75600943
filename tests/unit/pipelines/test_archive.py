"""What an archive copies: whole hours, from where the last run ended. With Spark: tests/spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from dejaqueue.errors import BadRequest
from dejaqueue.pipelines import archive as module
from dejaqueue.pipelines.archive import HOUR_MS, SETTLE_MS, Options
from dejaqueue.pipelines.archiving.folder import Folder
from dejaqueue.pipelines.frame import Outcome, Run
from dejaqueue.testing.virtual_clock import VirtualClock

NOW_MS = 480_000 * HOUR_MS + 5 * SETTLE_MS


class Table:
    """Stands for a table: says what was done to it."""

    def __init__(self, fails: bool = False) -> None:
        self.told: list[str] = []
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            self.told.append(name)
            if name == "parquet" and self._fails:
                raise OSError("disk full")
            return 7 if name == "count" else self

        return self if name == "write" else call


class Site:
    """A run, and what it asked for: (topic, from hour, to hour)."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.asked: list[tuple[str, float, float]] = []
        self.said: list[str] = []
        self.tables: list[Table] = []
        self.fails: set[str] = set()
        self.clock = VirtualClock(start_ms=NOW_MS)
        patch.setattr(module, "_history", lambda options, run, topic: topic)
        patch.setattr(module, "finished_in", self._finished)

    def _finished(self, topic: Any, from_ms: int, to_ms: int) -> Any:
        self.asked.append((topic, from_ms / HOUR_MS, to_ms / HOUR_MS))
        self.tables.append(Table(topic in self.fails))
        return self.tables[-1]

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        yield

    def say(self, text: str) -> None:
        self.said.append(text)

    def run(self, topics: str = "mail", **more: Any) -> Outcome:
        options = Options.of({"topics": topics, "out": str(self.folder), **more})
        return module.run(options, cast(Run, self))

    def archived_hours(self, topic: str = "mail") -> float:
        return Folder(str(self.folder)).archived_ms(topic) / HOUR_MS


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_hours_that_are_over_are_copied__and_the_next_run_goes_on_there(site: Site) -> None:
    assert site.run("mail,sms").figures["changes"] == 14
    assert site.asked == [("mail", 0, 480_000), ("sms", 0, 480_000)]
    assert site.archived_hours() == 480_000
    site.run("mail")
    assert len(site.asked) == 2
    assert site.said == ["mail is archived until then"]
    site.clock.advance(ms=2 * HOUR_MS)
    site.run("mail")
    assert site.asked[2:] == [("mail", 480_000, 480_002)]


def test_an_hour_is_copied_when_it_has_been_over_for_a_while(site: Site) -> None:
    site.clock = VirtualClock(start_ms=480_000 * HOUR_MS + SETTLE_MS - 1)
    site.run()
    assert site.archived_hours() == 479_999
    site.clock.advance(ms=1)
    site.run()
    assert site.archived_hours() == 480_000


def test_a_time_that_was_given_is_cut_to_its_hour(site: Site) -> None:
    site.run(to_ms=7 * HOUR_MS + 1)
    assert site.asked == [("mail", 0, 7)]


def test_what_was_not_written_is_not_noted__and_the_memory_is_given_back(site: Site) -> None:
    site.fails = {"sms"}
    with pytest.raises(OSError, match="disk full"):
        site.run("mail,sms,push")
    assert [site.archived_hours(name) for name in ("mail", "sms", "push")] == [480_000, 0, 0]
    assert [table.told[-1] for table in site.tables] == ["unpersist", "unpersist"]


def test_hours_are_replaced_as_a_whole__and_no_others(site: Site) -> None:
    given: list[Any] = []

    class Writing(Table):
        def option(self, *words: str) -> Table:
            given.append(words)
            return self

        def mode(self, word: str) -> Table:
            given.append(word)
            return self

    module._write(cast(Any, Writing()), "out")
    assert given == ["overwrite", ("partitionOverwriteMode", "dynamic")]


def test_old_days_are_deleted_where_it_is_asked_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    pruned: list[int] = []

    def prune(self: Folder, before_ms: int) -> int:
        pruned.append(before_ms)
        return 3

    monkeypatch.setattr(Folder, "prune", prune)
    assert site.run().figures["days_deleted"] == 0
    assert site.run(keep_ms="2d").figures["days_deleted"] == 3
    assert pruned == [NOW_MS - 48 * HOUR_MS]


def test_whose_messages_has_to_be_said(site: Site) -> None:
    with pytest.raises(BadRequest, match="--topics: the names of topics"):
        site.run("")
