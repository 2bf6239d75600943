"""What routes are told: their service, and who the entrance let in."""

from __future__ import annotations

import pytest
from fastapi import FastAPI, Request

from dejaqueue.access.gate import Gate
from dejaqueue.access.roles import EVERYBODY
from dejaqueue.broker.broker import Broker
from dejaqueue.http.auditing import PRINCIPAL
from dejaqueue.http.service import Service, principal_of, service_of


def test_a_route_is_told_its_service_and_its_caller(broker: Broker) -> None:
    app = FastAPI()
    app.state.service = Service(broker, Gate(), lambda: True)
    request = Request({"type": "http", "headers": [], "app": app, PRINCIPAL: EVERYBODY})
    assert principal_of(request) is EVERYBODY
    assert service_of(request).broker is broker


def test_a_route_that_nobody_was_let_in_to_answers_nobody(broker: Broker) -> None:
    request = Request({"type": "http", "headers": []})
    with pytest.raises(KeyError):
        principal_of(request)
