"""Real servers that a cluster stands on, one of each for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from dev.services import registry
from dev.services.service import Service


def _service(name: str) -> Iterator[Service]:
    lacking = registry.missing(name)
    if lacking and not os.environ.get("REQUIRE_ALL"):
        pytest.skip(lacking)
    service = registry.start(name)
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture(scope="session")
def etcd() -> Iterator[Service]:
    yield from _service("etcd")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Service]:
    yield from _service("postgresql")
