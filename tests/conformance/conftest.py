"""Real servers for this folder, each started once for a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.services import Service, missing, start


def _service(name: str) -> Iterator[Service]:
    lacking = missing(name)
    if lacking:
        pytest.skip(f"not installed: {lacking}")
    with start(name) as service:
        yield service


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Service]:
    yield from _service("postgresql")


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Service]:
    yield from _service("mariadb")
