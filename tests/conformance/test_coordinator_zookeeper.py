"""Facts in a real ZooKeeper keep the contract of a coordinator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.services import Service, missing
from dev.services.zookeeper import ZooKeeper
from tests.conformance.served_coordinator import ServiceCoordinatorConformance

PACKET_BYTES_MAX = 4 << 20


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[Service]:
    if lacking := missing("zookeeper"):
        pytest.skip(lacking)
    service = ZooKeeper(tickTime="500", maxSessionTimeout="120000")
    service.java_settings["jute.maxbuffer"] = str(PACKET_BYTES_MAX)
    with service.start():
        yield service


class TestZooKeeper(ServiceCoordinatorConformance):
    # A session has a second more than the ttl, and two ticks at least; it ends with a tick.
    ttl_late_ms = 2_500

    @pytest.fixture(autouse=True)
    def _use(self, zookeeper: Service) -> None:
        self.use(zookeeper)

    def url(self, port: int | None = None) -> str:
        place = f"127.0.0.1:{port or self.service.port}"
        return f"zookeeper://{place}/{self.name}?jute_maxbuffer={PACKET_BYTES_MAX}"
