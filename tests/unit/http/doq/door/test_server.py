"""The server's port and its end. What it answers: tests/doq/test_grpc.py; who may call:
tests/integration/test_doq_grpc.py.
"""

from __future__ import annotations

import grpc
import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.broker.broker import Broker
from dejaqueue.errors import BadRequest
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.setting_groups import DoqSettings
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.doq.grpc_client import request, stub_of
from tests.integration.access_fixture import running
from tests.patience import PATIENCE_SECONDS

DOQ = DoqSettings(enabled=True, port=0)


def test_it_is_off_by_default() -> None:
    with running() as site:
        assert site.http.doq_port is None


def test_a_port_that_is_taken_is_said__and_not_shared() -> None:
    with running(doq=DOQ) as site:
        port = site.http.doq_port
        assert port is not None
        journal = JournalSettings(url="memory:")
        broker = Broker(BrokerSettings(journal=journal, doq=DoqSettings(enabled=True, port=port)))
        other = HttpServer(Service(broker, Gate(), lambda: True), "127.0.0.1", 0)
        with pytest.raises(BadRequest, match=r"doq\.port"):
            other.start()
        other.stop()


def test_who_waits_is_told_when_it_stops() -> None:
    with running(doq=DOQ) as site:
        channel = grpc.insecure_channel(f"127.0.0.1:{site.http.doq_port}")
        stub = stub_of(channel)
        stub.CreateQueue(request("CreateQueue", name="q", type="fair"), timeout=PATIENCE_SECONDS)
        asked = [request("Dequeue", queueName="q")]
        waiting = stub.DequeueStream(iter(asked), timeout=PATIENCE_SECONDS)
        stub.GetQueues(request("GetQueues"), timeout=PATIENCE_SECONDS)
        site.http.stop()
        with pytest.raises(grpc.RpcError) as error:
            next(waiting)
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        channel.close()
