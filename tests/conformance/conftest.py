"""Real servers for this folder, each started once for a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.services import Service
from tests.server_fixtures import served


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Service]:
    yield from served("postgresql")


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Service]:
    yield from served("mariadb")
