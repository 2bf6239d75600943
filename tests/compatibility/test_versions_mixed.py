"""Brokers of two versions in one cluster, under load: a rolling upgrade, and the way back.

Nothing was released yet, so the other version is this code under another number: that each of the
two is a process with a code of its own, that members and clients are told of both, and that nothing
is lost, early or twice while one after the other is replaced. From the first release on, that
release takes its place (releases.toml).
Covered: three `dejaq serve` on one PostgreSQL and one etcd. Not covered: formats of journals that
differ (tests/replay).
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import dejaqueue
from dejaqueue.version import __version__
from dev.services.service import Service
from tests.cluster.conftest import etcd, postgresql  # noqa: F401 - fixtures
from tests.cluster.served import brokers_to_start, members
from tests.cluster.waits import under_load
from tests.crash.broker_process import BrokerProcess
from tests.patience import until

pytestmark = [pytest.mark.crash]

LEASE_MS = 5_000
ALL = os.environ.get("DEJAQ_RELIABILITY") == "all"
"""The way back takes a minute more."""
OTHER = "0.0.9"
TODAY = Path(dejaqueue.__file__).parents[1]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the other version, as PYTHONPATH takes it."""
    place = tmp_path_factory.mktemp("other")
    leaving = shutil.ignore_patterns("__pycache__")
    shutil.copytree(TODAY / "dejaqueue", place / "dejaqueue", ignore=leaving)
    version = place / "dejaqueue" / "version.py"
    version.write_text(version.read_text().replace(f'"{__version__}"', f'"{OTHER}"'))
    return place


@pytest.fixture
def brokers(
    postgresql: Service,  # noqa: F811
    etcd: Service,  # noqa: F811
    tmp_path: Path,
) -> Iterator[list[BrokerProcess]]:
    with brokers_to_start(tmp_path, postgresql, etcd, LEASE_MS, "abc") as made:
        yield made


@pytest.mark.parametrize("way", ["upgrade", "way back"] if ALL else ["upgrade"])
def test_one_broker_after_the_other_is_replaced_under_load(
    brokers: list[BrokerProcess], other: Path, way: str
) -> None:
    codes = {OTHER: other, __version__: TODAY}
    before, after = (OTHER, __version__) if way == "upgrade" else (__version__, OTHER)
    for broker in brokers:
        broker.code = codes[before]
        broker.start()
    with under_load(_url(brokers), "rolls") as waits:
        waits.mark(before)
        for count, broker in enumerate(brokers, 1):
            assert broker.stop() == 0
            broker.code = codes[after]
            broker.start()
            known = [after] * count + [before] * (len(brokers) - count)

            def is_seen(known: list[str] = known) -> bool:
                return [sorted(members(one).values()) for one in brokers] == [sorted(known)] * 3

            until(is_seen, f"all see {known}")
            threading.Event().wait(1.0)
            waits.mark(f"{count} of {after}")


def _url(brokers: list[BrokerProcess]) -> str:
    return "dejaq://" + ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
