"""Facts in a real etcd keep the contract of a coordinator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.services import Service, missing, start
from tests.conformance.served_coordinator import ServiceCoordinatorConformance


@pytest.fixture(scope="module")
def etcd() -> Iterator[Service]:
    if lacking := missing("etcd"):
        pytest.skip(lacking)
    with start("etcd") as service:
        yield service


class TestEtcd(ServiceCoordinatorConformance):
    # Its leases have whole seconds, two at least, and are looked at twice a second.
    ttl_late_ms = 2_800

    @pytest.fixture(autouse=True)
    def _use(self, etcd: Service) -> None:
        self.use(etcd)

    def url(self, port: int | None = None) -> str:
        return f"etcd://127.0.0.1:{port or self.service.port}/{self.name}"
