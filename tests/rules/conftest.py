"""Every rule is tried on memory and on segment files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rules.broker_fixture import BrokerFixture

MakeBroker = Callable[..., BrokerFixture]


@pytest.fixture(params=["memory", "segments"])
def make_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeBroker]:
    made: list[BrokerFixture] = []

    def make(**topic: Any) -> BrokerFixture:
        path = None if request.param == "memory" else tmp_path / "journal"
        fixture = BrokerFixture(path, **topic)
        made.append(fixture)
        return fixture

    yield make
    for fixture in made:
        fixture.stop()


@pytest.fixture
def on_files(tmp_path: Path) -> Iterator[MakeBroker]:
    """For rules that need a restart."""
    made: list[BrokerFixture] = []

    def make(**topic: Any) -> BrokerFixture:
        fixture = BrokerFixture(tmp_path / "journal", **topic)
        made.append(fixture)
        return fixture

    yield make
    for fixture in made:
        fixture.stop()
