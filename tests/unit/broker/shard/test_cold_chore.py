"""The chore of cold payloads where it does nothing, and how it plans objects.

Not covered: what it does for messages (tests/rules/test_rule_22_cold_payloads.py).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dejaqueue.broker.payloads.cold_objects import ColdObjects
from dejaqueue.broker.payloads.payloads import Payloads
from dejaqueue.broker.shard import cold_chore
from dejaqueue.broker.shard.cold_chore import ColdChore
from dejaqueue.model import Topic
from dejaqueue.settings import BrokerSettings
from tests.unit.broker.cores import Served


def made(topic: Topic) -> tuple[Served, ColdChore]:
    served = Served(topic)
    payloads = Payloads(BrokerSettings(), served.clock, ThreadPoolExecutor(1))
    chore = ColdChore(ColdObjects(payloads))
    chore.loaded(served.core)
    return served, chore


@pytest.mark.parametrize("after_ms", [0, 3_600_000])
def test_without_a_store_or_a_wish_it_does_nothing(after_ms: int) -> None:
    served, chore = made(Topic("t", cold_after_ms=after_ms))
    served.send([b"x" * 2_000], dues_ms=[served.clock.utc_ms() + 86_400_000])
    chore.step(served.core)
    assert not chore.after_append(served.core, is_idle=True)
    assert chore.next_us(served.core) is None


def test_objects_are_of_about_one_size_and_in_due_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_chore, "OBJECT_BYTES", 10_000)
    monkeypatch.setattr(cold_chore, "OBJECT_ROWS_MAX", 8)
    _, chore = made(Topic("t"))
    dues_ms = np.random.default_rng(5).permutation(40)
    sizes = np.full(40, 1_000)
    for half in (slice(20), slice(20, 40)):
        chore._waiting.append((np.arange(40)[half], dues_ms[half], sizes[half]))
    chore._waiting_bytes = 40_000
    chore._plan()
    planned = [part.tolist() for part in chore._planned]
    assert [len(part) for part in planned] == [8] * 5
    assert [int(dues_ms[one]) for part in planned for one in part] == list(range(40))
    assert chore._waiting_bytes == 0
