"""Who calls is read from the header."""

from __future__ import annotations

import pytest
from fastapi import FastAPI, Request

from dejaqueue.access.roles import EVERYBODY, Principal
from dejaqueue.broker.broker import Broker
from dejaqueue.http.service import Service, principal_of, service_of


class Noting:
    """A gate that notes what it was asked."""

    def __init__(self) -> None:
        self.keys: list[str | None] = []

    def principal(self, api_key: str | None) -> Principal:
        self.keys.append(api_key)
        return EVERYBODY


@pytest.mark.parametrize(
    ("header", "key"),
    [("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("Basic abc", None), ("", None)],
)
def test_the_key_is_a_bearer(broker: Broker, header: str, key: str | None) -> None:
    gate = Noting()
    app = FastAPI()
    app.state.service = Service(broker, gate, lambda: True)  # type: ignore[arg-type]
    headers = [(b"authorization", header.encode())] if header else []
    request = Request({"type": "http", "headers": headers, "app": app})
    assert principal_of(request) is EVERYBODY
    assert gate.keys == [key]
    assert service_of(request).broker is broker
