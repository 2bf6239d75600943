"""Real servers as fixtures: left out where one is not installed, each in memory where that is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.services import Service, missing, start


def served(name: str) -> Iterator[Service]:
    """A server of this name, for a fixture to yield from."""
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
