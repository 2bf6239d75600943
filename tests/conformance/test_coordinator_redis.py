"""Facts in a real Redis keep the contract of a coordinator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.services import Service, missing, start
from tests.conformance.served_coordinator import ServiceCoordinatorConformance


@pytest.fixture(scope="module")
def redis() -> Iterator[Service]:
    if lacking := missing("redis"):
        pytest.skip(lacking)
    with start("redis") as service:
        yield service


class TestRedis(ServiceCoordinatorConformance):
    ttl_late_ms = 500

    @pytest.fixture(autouse=True)
    def _use(self, redis: Service) -> None:
        self.use(redis)

    def url(self, port: int | None = None) -> str:
        return f"redis://127.0.0.1:{port or self.service.port}?prefix={self.name}"
