"""Facts of one process keep the contract of a coordinator."""

from __future__ import annotations

import uuid

import pytest

from dejaqueue.testing.coordinator_conformance import CoordinatorConformance


class TestInProcess(CoordinatorConformance):
    ttl_late_ms = 500
    is_shared = False

    @pytest.fixture(autouse=True)
    def _name_it(self) -> None:
        self.name = uuid.uuid4().hex

    def url(self, port: int | None = None) -> str:
        return f"memory:{self.name}"
