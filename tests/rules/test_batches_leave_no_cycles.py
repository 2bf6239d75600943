"""A batch goes with its last user, not when Python looks for cycles, which it does by the number of
objects: batches are few and large, so hundreds of megabytes of them wait for that.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from dejaqueue.broker.partition.requests import EnqueueRequest
from dejaqueue.errors import ResourceExhausted
from dejaqueue.settings import DispatchSettings
from tests.rules.conftest import MakeBroker

SENT = 20


def requests_alive() -> int:
    return sum(type(one) is EnqueueRequest for one in gc.get_objects())


@pytest.fixture
def alive_before() -> Iterator[int]:
    """What the threads of other tests still name; nothing is collected from then on."""
    gc.collect()
    gc.disable()
    yield requests_alive()
    gc.enable()


def test_what_was_stored_is_forgotten(make_broker: MakeBroker, alive_before: int) -> None:
    broker = make_broker(partitions=3)
    for number in range(SENT):
        keys = [f"{number}-{row}" for row in range(6)]
        assert broker.send([b"x" * 1_000] * 6, keys=keys).error is None
    broker.settle_down()
    assert requests_alive() - alive_before < SENT // 4, "the last ones may be named by frames"


def test_what_was_refused_is_forgotten(make_broker: MakeBroker, alive_before: int) -> None:
    broker = make_broker(max_backlog_count=5)
    for _ in range(SENT):
        assert isinstance(broker.send([b"x" * 1_000] * 6).error, ResourceExhausted)
    broker.settle_down()
    assert requests_alive() - alive_before < SENT // 4, "the last ones may be named by frames"


def test_what_was_refused_takes_no_place_in_a_group(make_broker: MakeBroker) -> None:
    broker = make_broker(max_backlog_count=5)
    refused = 0
    while refused <= DispatchSettings().group_bytes_max:
        rows = [b"x" * 64_000] * 16
        assert isinstance(broker.send(rows).error, ResourceExhausted)
        refused += sum(map(len, rows))
    assert broker.send([b"fits"]).error is None
    assert broker.consumer(credit=10).payloads() == [b"fits"]
