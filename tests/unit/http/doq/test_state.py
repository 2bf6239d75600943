"""How a message is shown to DOQ's clients. All calls: test_routes.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from fastapi import Request

from dejaqueue.broker.broker import Broker
from dejaqueue.http.doq.rows import Row
from dejaqueue.http.doq.state import Doq, doq_of, message_answer, metadata_part
from dejaqueue.http.service import Service

ROW = Row("7", "g", 60, 'say "ü"', {"retry": "0"}, 7, "", 1)


def test_a_message_is_shown_with_its_fields_and_its_status() -> None:
    answer = message_answer("DEQUEUED", ROW)
    assert orjson.loads(answer.body) == {
        "status": "DEQUEUED",
        "id": "7",
        "group": "g",
        "priority": 60,
        "content": 'say "ü"',
        "metadata": {"retry": "0"},
    }
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("nothing", [None, {}])
def test_metadata_is_left_out_where_there_is_none(nothing: dict[str, str] | None) -> None:
    assert metadata_part(nothing) == {}
    assert metadata_part({"a": "1"}) == {"metadata": {"a": "1"}}


def test_an_application_has_one_state__with_the_brokers_clock(broker: Broker) -> None:
    state = Doq(cast(Service, SimpleNamespace(broker=broker)))
    app = SimpleNamespace(state=SimpleNamespace(doq=state))
    scope: dict[str, Any] = {"type": "http", "app": app}
    assert doq_of(Request(scope)) is state
    assert state.ids is state.messages._ids, "ids that are given ahead and at a send differ"
    [first], [second] = state.ids.take(1), state.ids.take(1)
    assert int(second) == int(first) + 1, "the clock of the test stands still"
