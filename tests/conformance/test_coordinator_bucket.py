"""Facts in a bucket keep the contract of a coordinator: in a directory, in memory, and in stores of
S3's protocol, one of which can be killed.
"""

from __future__ import annotations

import secrets
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dejaqueue.coordinator.bucket import BucketCoordinator
from dejaqueue.coordinator.interface import Coordinator
from dejaqueue.testing.coordinator_conformance import (
    CoordinatorConformance,
    ServedCoordinatorConformance,
)
from dev.services.versitygw import Versitygw
from tests.memory_bucket import MemoryBucket
from tests.object_store import S3Server, s3_server
from tests.server_fixtures import served

TTL_LATE_MS = 700
"""A bucket is looked at every half second."""


class TestDirectory(CoordinatorConformance):
    ttl_late_ms = TTL_LATE_MS

    @pytest.fixture(autouse=True)
    def _use(self, tmp_path: Path) -> None:
        self.path = tmp_path / "bucket"

    def url(self, port: int | None = None) -> str:
        return f"bucket://{self.path}"


class TestMemory(CoordinatorConformance):
    """Each request takes some time, so that changes meet."""

    ttl_late_ms = TTL_LATE_MS
    is_shared = False
    race_times = 10

    @pytest.fixture(autouse=True)
    def _use(self) -> None:
        self.bucket = MemoryBucket(answer_ms=5)

    def url(self, port: int | None = None) -> str:
        return "bucket:"

    @contextmanager
    def opened(self, count: int) -> Iterator[list[Coordinator]]:
        with ExitStack() as stack:
            opened: list[Coordinator] = []
            for _ in range(count):
                opened.append(BucketCoordinator(self.bucket))
                stack.callback(opened[-1].close)
            yield opened


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    yield from s3_server()


class TestMoto(CoordinatorConformance):
    ttl_late_ms = TTL_LATE_MS + 300
    race_times = 10

    @pytest.fixture(autouse=True)
    def _use(self, server: S3Server) -> None:
        self.bucket = server.new_bucket()

    def url(self, port: int | None = None) -> str:
        return f"{self.bucket}/queues"

    def test_4_a_ttl_is_kept(self) -> None:
        """Without renewals: on a busy machine moto's server is slower than the ttls there."""
        self._vanishes_and_rings()
        self._is_of_the_last_put()
        with self.opened(1) as (one,):
            assert [fact.key for fact in one.list("last/")] == ["last/stays"]


@pytest.fixture(scope="module")
def gateway() -> Iterator[Versitygw]:
    for service in served("versitygw"):
        assert isinstance(service, Versitygw)
        yield service


@pytest.mark.may_skip
class TestGateway(ServedCoordinatorConformance):
    """A server that keeps what it acknowledged when it is killed."""

    ttl_late_ms = TTL_LATE_MS + 300
    race_times = 10

    @pytest.fixture(autouse=True)
    def _use(self, gateway: Versitygw, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gateway, self.patch = gateway, monkeypatch
        for name, value in gateway.environment.items():
            monkeypatch.setenv(name, value)
        self.bucket = gateway.new_bucket(f"b{secrets.token_hex(8)}")

    def url(self, port: int | None = None) -> str:
        self.patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port or self.gateway.port}")
        return f"{self.bucket}/{uuid.UUID(int=0).hex}"

    def port(self) -> int:
        return self.gateway.port

    def stop(self) -> None:
        self.gateway.kill()

    def start(self) -> None:
        # It starts in less than the time between two looks: what nobody has met was not away.
        threading.Event().wait(1.0)
        self.gateway.start()
