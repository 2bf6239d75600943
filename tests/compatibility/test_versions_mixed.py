"""Brokers of two versions in one cluster, under load: a rolling upgrade, and the way back.

Nothing was released yet, so the other version is a commit whose brokers form a cluster with
today's (releases.toml, `cluster`), under another number: members and clients are told of both, and
nothing is lost, early or twice while one after the other is replaced. From the first release on,
that release takes its place. A commit from before keeps a cluster in other formats: whichever of
the two comes second refuses to start, and the first one goes on.
Covered: `dejaq serve` on one PostgreSQL and one etcd. Not covered: formats of journals that differ
(tests/replay).
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import dejaqueue
from dejaqueue import Client
from dejaqueue.version import __version__
from dev.services.service import Service
from tests.cluster.conftest import etcd, postgresql  # noqa: F401 - fixtures
from tests.cluster.served import brokers_to_start, members
from tests.cluster.waits import under_load
from tests.compatibility.released import RELEASES, code_of
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
    place = code_of(RELEASES["cluster"]["commit"], tmp_path_factory.mktemp("other"))
    version = place / "dejaqueue" / "version.py"
    given = version.read_text()
    version.write_text(re.sub(r'__version__ = "[^"]*"', f'__version__ = "{OTHER}"', given))
    assert OTHER in version.read_text()
    return place


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of a version that keeps a cluster in other formats."""
    return code_of(RELEASES["released"]["commit"], tmp_path_factory.mktemp("foreign"))


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


@pytest.mark.parametrize("first", ["theirs", "ours"])
def test_a_broker_of_other_formats_is_refused__and_the_cluster_goes_on(
    brokers: list[BrokerProcess], foreign: Path, first: str
) -> None:
    there, comes, _ = brokers
    there.code, comes.code = (foreign, TODAY) if first == "theirs" else (TODAY, foreign)
    there.start()
    with Client(there.url) as client:
        client.create_topic("orders", partitions=2)
        client.send_batch("orders", [{"payload": b"%d" % number} for number in range(10)])
        with pytest.raises(AssertionError, match="did not start") as refused:
            comes.start()
        said = str(refused.value).strip().splitlines()[-1]
        assert said.startswith("error: "), "it says so, and is no traceback"
        assert "belong to no cluster" in said
        if first == "theirs":
            assert f"that dejaq {__version__} can read" in said
        client.send("orders", b"10")
        with client.consume("orders", max_messages=11) as messages:
            payloads = set()
            for message in messages:
                payloads.add(message.payload)
                message.ack()
        assert payloads == {b"%d" % number for number in range(11)}
        assert [one["node"] for one in client.cluster()["nodes"]] == ["a"]


def _url(brokers: list[BrokerProcess]) -> str:
    return "dejaq://" + ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
