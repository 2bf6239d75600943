"""Names, priorities and metadata of a DOQ message in the fields of a row."""

from __future__ import annotations

import pytest

from dejaqueue.broker.doq.messages import PRIORITY
from dejaqueue.errors import BadRequest
from dejaqueue.http.doq import rows
from dejaqueue.http.doq.shapes import DoqNewMessage
from dejaqueue.model import Topic, TopicKind

ROW = {
    "id": 7,
    "due": 60_000,
    "attempts": 1,
    "key": None,
    "group": None,
    "headers": None,
    "payload": b"a",
}


def row(kind: TopicKind = TopicKind.TIMELINE, **changes: object) -> rows.Row:
    return rows.row_of(Topic("q", kind), ROW | changes)


def test_a_priority_is_what_was_changed_last() -> None:
    sent = [(PRIORITY, "5"), ("retry", "1")]
    assert row().priority == 60, "a message of another producer: its due time"
    assert row(headers=sent).priority == 5
    assert row(headers=sent, group="doq-priority:9").priority == 9
    assert row(headers=sent, group="gold").priority == 5
    assert row(headers=[(PRIORITY, "five")]).priority == 60


def test_metadata_are_the_other_headers() -> None:
    assert row(headers=[(PRIORITY, "5"), ("retry", "1")]).metadata == {"retry": "1"}
    assert row(headers=[(PRIORITY, "5")]).metadata is None
    with pytest.raises(BadRequest, match=PRIORITY):
        rows.headers_of(1, {PRIORITY: "2"})


def test_a_message_is_called_by_its_key_if_it_has_one() -> None:
    assert row().id == "7"
    assert row(key="8").id == "8"
    assert row(key="8'").id == "8", "it was sent anew"
    assert row(TopicKind.FAIR, group="g").group == "g"
    assert row(group="g").group == "default"


@pytest.mark.parametrize("text", ["", "-1", "1.0", "x", "²", str(1 << 64), "9" * 5_000])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="id"):
        rows.name_of(text)


def test_a_batch_says_when_and_for_whom() -> None:
    message = DoqNewMessage(content="a", priority=1_700_000_000, group="g", metadata={"retry": "1"})
    delayed = rows.sending_of(Topic("q"), message, "")
    named = rows.sending_of(Topic("q"), message, "9")
    first, second = rows.send_batch([delayed, named], 7).to_pylist()
    assert (first["due"], "group" in first) == (1_700_000_000_000, False)
    assert (first["key"], second["key"]) == ("", "9")
    assert dict(first["headers"]) == {"retry": "1", PRIORITY: "1700000000"}
    [fair] = rows.send_batch(
        [rows.sending_of(Topic("q", TopicKind.FAIR), message, "")], 7
    ).to_pylist()
    assert (fair["group"], fair["due"], "key" in fair) == ("g", 7, False)
