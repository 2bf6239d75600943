"""Facts in a real etcd keep the contract of a coordinator."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from dejaqueue.testing.coordinator_conformance import ServedCoordinatorConformance
from dev.services import Service, missing, start


@pytest.fixture(scope="module")
def etcd() -> Iterator[Service]:
    if lacking := missing("etcd"):
        pytest.skip(lacking)
    with start("etcd") as service:
        yield service


class TestEtcd(ServedCoordinatorConformance):
    # Its leases have whole seconds, two at least, and are looked at twice a second.
    ttl_late_ms = 2_800

    @pytest.fixture(autouse=True)
    def _use(self, etcd: Service) -> None:
        self.service = etcd
        self.name = uuid.uuid4().hex

    def url(self, port: int | None = None) -> str:
        return f"etcd://127.0.0.1:{port or self.service.port}/{self.name}"

    def port(self) -> int:
        return self.service.port

    def stop(self) -> None:
        self.service.kill()

    def start(self) -> None:
        self.service.start()
