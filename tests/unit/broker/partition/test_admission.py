"""What a partition lets in. Whole topics and disks that are full: tests/rules, tests/crash."""

from __future__ import annotations

import pytest

from dejaqueue.broker.partition.admission import Admission, shortage
from dejaqueue.broker.shard.allotment import Allotment
from dejaqueue.broker.shard.backlog import Backlog
from dejaqueue.engine.commands import Stage
from dejaqueue.errors import Refused, ResourceExhausted
from dejaqueue.model import Topic
from tests.unit.broker.cores import Served


def test_other_partitions_count_as_of_their_last_steps__this_one_as_of_now() -> None:
    served = Served(Topic("t", max_backlog_count=10))
    served.send([b"a"] * 4)
    core = served.core
    core.backlog = Backlog(1, 1)  # as of its last step, which the topic's sum has
    others = 5
    assert shortage(core, Allotment(lambda: Backlog(others, 0) + core.backlog), 1, 1) is None
    assert core.backlog == Backlog(5, 5)  # noted, before it is there
    full = shortage(core, Allotment(lambda: Backlog(others, 0) + core.backlog), 2, 1)
    assert isinstance(full, ResourceExhausted)
    assert "9 messages are live" in str(full)
    assert full.__traceback__ is None  # its frames would hold the batch


def test_a_full_disk_refuses__and_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served()
    monkeypatch.setattr(served.core.journal, "has_room", lambda byte_count: False)
    refused = served.admission.refusal(served.core, None, 1, 1)
    assert "the disk is full" in str(refused)
    assert served.core.lacks_room


def test_why_a_transaction_takes_no_more_is_told_before_what_passes_by_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = Served()
    monkeypatch.setattr(served.core.journal, "has_room", lambda byte_count: False)
    over = Stage("t/0/1-2-" + "0" * 32, served.core.now_ms())
    assert isinstance(Admission(Allotment(Backlog)).refusal(served.core, over, 1, 1), Refused)
