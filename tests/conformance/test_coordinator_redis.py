"""Facts in a real Redis keep the contract of a coordinator."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from dejaqueue.testing.coordinator_conformance import ServedCoordinatorConformance
from dev.services import Service, missing, start


@pytest.fixture(scope="module")
def redis() -> Iterator[Service]:
    if lacking := missing("redis"):
        pytest.skip(lacking)
    with start("redis") as service:
        yield service


class TestRedis(ServedCoordinatorConformance):
    ttl_late_ms = 500

    @pytest.fixture(autouse=True)
    def _use(self, redis: Service) -> None:
        self.service = redis
        self.name = uuid.uuid4().hex

    def url(self, port: int | None = None) -> str:
        return f"redis://127.0.0.1:{port or self.service.port}?prefix={self.name}"

    def port(self) -> int:
        return self.service.port

    def stop(self) -> None:
        self.service.kill()

    def start(self) -> None:
        self.service.start()
