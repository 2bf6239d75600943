"""Covers: every call of the table has a function, and none can be left out.

Not covered: what the functions answer (tests/rules, tests/integration).
"""

from __future__ import annotations

import importlib.util
from concurrent.futures import Future
from types import ModuleType
from typing import Any

import pytest

from dejaqueue.access import calls as table
from dejaqueue.access.calls import ACTIONS, TICKETS, Call
from dejaqueue.access.rules import Rule
from dejaqueue.access.senders import ANYBODY
from dejaqueue.broker.broker import Broker
from dejaqueue.broker.calls import calls
from dejaqueue.errors import BadRequest
from dejaqueue.settings import BrokerSettings, JournalSettings


def load() -> ModuleType:
    """The module of the functions, loaded once more beside the one that is in use."""
    assert calls.__file__ is not None
    spec = importlib.util.spec_from_file_location("calls_again", calls.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["ACTIONS", "TICKETS"])
def test_a_row_without_a_function_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    load()
    row = Call("levitate", (), Rule(), "Rise.")
    monkeypatch.setitem(getattr(table, kind), "levitate", row)
    with pytest.raises(KeyError, match="levitate"):
        load()


@pytest.fixture
def broker() -> Any:
    broker = Broker(BrokerSettings(journal=JournalSettings(url="memory:")))
    broker.start()
    yield broker
    broker.stop()


def test_a_call_that_is_not_in_the_table_is_refused(broker: Broker) -> None:
    with pytest.raises(BadRequest, match=r"^action: "):
        broker.call("levitate")
    with pytest.raises(BadRequest, match=r"^ticket\.op: "):
        broker.read("levitate", {})


@pytest.mark.parametrize("name", ACTIONS)
def test_a_field_that_a_call_does_not_have_is_refused_by_name(broker: Broker, name: str) -> None:
    if name == "alter_topic":
        broker.call("create_topic", {"name": "t"})
    with pytest.raises(BadRequest) as caught:
        broker.call(
            name, {"name": "t"} | {"colour": "red"} if ACTIONS[name].more else {"colour": 1}
        )
    assert caught.value.field.endswith("colour")


@pytest.mark.parametrize("op", TICKETS)
def test_a_field_that_a_ticket_does_not_have_is_refused_by_name(broker: Broker, op: str) -> None:
    with pytest.raises(BadRequest) as caught:
        broker.read(op, {"colour": 1})
    assert caught.value.field == "colour"


def test_the_body_that_was_given_is_not_changed(broker: Broker) -> None:
    body = {"name": "t", "exist_ok": True, "lease_ms": 5_000}
    broker.call("create_topic", body)
    assert body == {"name": "t", "exist_ok": True, "lease_ms": 5_000}


def test_ask_gives_a_future_for_every_call(broker: Broker) -> None:
    broker.call("create_topic", {"name": "t"})
    for name in ("clock", "begin_transaction"):
        asked = broker.ask(name, {"topic": "t"} if name != "clock" else {}, ANYBODY)
        assert isinstance(asked, Future)
        assert asked.result(10)
