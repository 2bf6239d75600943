"""Covers: how options are named for `save` and `writes`, and what is made of a broker's notes.

Not covered: real writes (tests/spark/test_batch.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue import Client
from dejaqueue.errors import BadRequest, TopicUnknown, Unavailable
from dejaqueue.spark import Written, save, writes
from dejaqueue.spark.options import Options
from dejaqueue.spark.written import note
from tests.integration.access_fixture import running


class Table:
    """What `save` does with a table."""

    def __init__(self) -> None:
        self.write = self
        self.given: dict[str, str] = {}

    def format(self, name: str) -> Table:
        assert name == "dejaq"
        return self

    def options(self, **given: str) -> Table:
        self.given = given
        return self

    def mode(self, mode: str) -> Table:
        assert mode == "append"
        return self

    def save(self) -> None:
        """Noted is what a job with a third of its rows refused would note."""
        options = Options.of(self.given)
        core = options.client("test")
        try:
            note(core, options, {"OK": 2, "DUPLICATE": 1}, label="not taken: it has one")
        finally:
            core.close()


def test_a_write_is_named_noted_and_found() -> None:
    with running() as site:
        url = f"dejaq://127.0.0.1:{site.flight.port}"
        with Client(url) as client:
            client.create_topic("t")
        table: Any = Table()
        given: dict[str, Any] = {"url": url, "topic": "t", "refusals_path": "/x", "label": None}
        assert save(table, **given) == {"OK": 2, "DUPLICATE": 1}
        assert table.given["refusals.path"] == "/x"
        assert table.given["label"].startswith("save-")
        [one] = writes(url=url, topic="t")
        assert isinstance(one, Written)
        assert (one.label, one.epoch, one.is_committed) == (table.given["label"], -1, True)
        save(table, **(given | {"label": "mine", "max.rows": 5}))
        assert [one.label for one in writes(url=url, topic="t", label="mine")] == ["mine"]
        with pytest.raises(TopicUnknown):
            writes(url=url, topic="nothing")
        table.save = lambda: None  # as if the broker had been restarted
        with pytest.raises(Unavailable, match="counts were lost"):
            save(table, url=url, topic="t")


def test_a_wrong_option_is_told_before_anything_is_written() -> None:
    table: Any = Table()
    with pytest.raises(BadRequest, match="option colour"):
        save(table, topic="t", colour="red")
    with pytest.raises(BadRequest, match="option topic"):
        save(table)
    assert table.given == {}
