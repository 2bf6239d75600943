"""What probes ask."""

from __future__ import annotations

import httpx

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service


def test_alive_before_it_is_ready() -> None:
    server = HttpServer(Service(Broker(), Gate(), lambda: False), "127.0.0.1", 0)
    server.start()
    url = f"http://127.0.0.1:{server.port}"
    with httpx.Client(base_url=url, trust_env=False) as client:
        assert client.get("/livez").status_code == 200
        assert client.get("/readyz").json() == {"status": "not ready"}
        assert client.head("/livez").status_code == 200
        assert client.head("/readyz").status_code == 503
        assert client.get("/stats").json()["topics"] == {}
    server.stop()
