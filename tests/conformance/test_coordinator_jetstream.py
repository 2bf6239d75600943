"""Facts in a real NATS JetStream keep the contract of a coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dejaqueue.connections.nats.connection import NatsConnection
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.errors import Unavailable
from dev.services import Service, missing, start
from tests.conformance.served_coordinator import ServiceCoordinatorConformance


@pytest.fixture(scope="module")
def nats() -> Iterator[Service]:
    if lacking := missing("nats"):
        pytest.skip(lacking)
    with start("nats") as service:
        yield service


class TestJetStream(ServiceCoordinatorConformance):
    # Whole seconds, and looked at about once a second.
    ttl_late_ms = 2_500

    @pytest.fixture(autouse=True)
    def _use(self, nats: Service) -> None:
        self.use(nats)

    def url(self, port: int | None = None) -> str:
        return f"nats://127.0.0.1:{port or self.service.port}?prefix={self.name}"

    def test_a_leader_that_can_store_nothing_is_not_believed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As of one that was cut off: what others have stored since it does not know."""
        coordinator = open_coordinator(self.url())
        try:
            coordinator.put("topics/t", b"there")
            publish = NatsConnection.publish_all

            def cut_off(
                connection: NatsConnection, subject: str, messages: Any, seconds: float
            ) -> Any:
                if subject.startswith("$KV."):
                    return [None for _ in messages]
                return publish(connection, subject, messages, seconds)

            with monkeypatch.context() as patch:
                patch.setattr(NatsConnection, "publish_all", cut_off)
                with pytest.raises(Unavailable):
                    coordinator.get("topics/t")
            fact = coordinator.get("topics/t")
            assert fact is not None
            assert fact.value == b"there"
            assert [one.key for one in coordinator.list("")] == ["topics/t"]
        finally:
            coordinator.close()
