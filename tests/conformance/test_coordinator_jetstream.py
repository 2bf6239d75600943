"""Facts in a real NATS JetStream keep the contract of a coordinator."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from dejaqueue.testing.coordinator_conformance import ServedCoordinatorConformance
from dev.services import Service, missing, start


@pytest.fixture(scope="module")
def nats() -> Iterator[Service]:
    if lacking := missing("nats"):
        pytest.skip(lacking)
    with start("nats") as service:
        yield service


class TestJetStream(ServedCoordinatorConformance):
    # Whole seconds, and looked at about once a second.
    ttl_late_ms = 2_500

    @pytest.fixture(autouse=True)
    def _use(self, nats: Service) -> None:
        self.service = nats
        self.name = uuid.uuid4().hex

    def url(self, port: int | None = None) -> str:
        return f"nats://127.0.0.1:{port or self.service.port}?prefix={self.name}"

    def port(self) -> int:
        return self.service.port

    def stop(self) -> None:
        self.service.kill()

    def start(self) -> None:
        self.service.start()
