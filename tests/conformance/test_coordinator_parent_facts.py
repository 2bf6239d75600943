"""Facts of a parent process keep the contract of a coordinator, over its children's sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dejaqueue.coordinator.facts_server import FactsServer
from dejaqueue.coordinator.interface import Coordinator
from dejaqueue.coordinator.kept_facts import KeptFacts
from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.testing.coordinator_conformance import CoordinatorConformance


class TestInherited(CoordinatorConformance):
    ttl_late_ms = 500
    is_shared = False

    @pytest.fixture(autouse=True)
    def _serve_it(self, tmp_path: Path) -> Iterator[None]:
        facts = KeptFacts(tmp_path / "facts.json", ("documents/", "a"))
        self.server = FactsServer(facts)
        yield
        self.server.close()
        facts.close()

    def url(self, port: int | None = None) -> str:
        return f"inherited:{self.server.connect().detach()}"

    @contextmanager
    def opened(self, count: int) -> Iterator[list[Coordinator]]:
        with ExitStack() as stack:
            opened = [open_coordinator(self.url()) for _ in range(count)]
            for one in opened:
                stack.callback(one.close)
            yield opened
