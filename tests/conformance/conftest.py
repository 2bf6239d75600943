"""Real servers for this folder, each started once for a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.services import Service, missing, start


def _service(name: str) -> Iterator[Service]:
    lacking = missing(name)
    if lacking:
        pytest.skip(f"not installed: {lacking}")
    with pytest.MonkeyPatch.context() as patch:
        # What a killed process loses is the same in memory, and a sync costs nothing there.
        if Path("/dev/shm").is_dir():
            patch.setenv("DEJAQ_SERVICES_ROOT", "/dev/shm")
        service = start(name)
    with service:
        yield service


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Service]:
    yield from _service("postgresql")


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Service]:
    yield from _service("mariadb")
