"""Move and cancel by id and by key. What messages do then: tests/rules."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dejaqueue.broker.partition.renaming import rename
from dejaqueue.broker.partition.requests import RenameRequest
from dejaqueue.broker.shard.entries import hash_column, text_column
from dejaqueue.engine.dictionary import of_runs
from dejaqueue.model import RowStatus
from dejaqueue.wire.frames import Reply
from tests.unit.broker.cores import Served, sequences

OK, NOT_FOUND = RowStatus.OK, RowStatus.NOT_FOUND


@pytest.fixture
def served() -> Served:
    served = Served()
    later_ms = served.clock.utc_ms() + 60_000
    served.send([b"a", b"b"], dues_ms=[later_ms] * 2, keys=["k", "l"])
    served.replies.clear()
    return served


def renamed(served: Served, **fields: object) -> Reply:
    rows = len(fields.get("sequences", fields.get("keys", [])))  # type: ignore[arg-type]
    request = RenameRequest(9, rows, "all", served.replies.append, **fields)  # type: ignore[arg-type]
    served.inbox.put(request)
    served.inbox.take()
    rename(served.core, served.inbox, request)
    served.core.commits.commit_all()
    return served.replies[-1]


def test_by_id__a_row_that_names_nothing_is_answered_so_and_keeps_its_id(served: Served) -> None:
    answer = renamed(served, sequences=sequences(0, 5, -1), cancel=True)
    assert answer.all_statuses().tolist() == [OK, NOT_FOUND, NOT_FOUND]
    assert answer.all_ids().tolist() == [0, 5, -1]
    assert served.core.engine.counts.scheduled == 1


def test_by_key__the_ids_are_answered(served: Served) -> None:
    keys = pa.array(["l", "nobody's"])
    hashes = hash_column(text_column(keys))
    due_ms = served.clock.utc_ms() + 5
    moved = renamed(served, keys=keys, key_hashes=hashes, dues_ms=sequences(due_ms, due_ms))
    assert moved.all_ids().tolist() == [1, -1]
    assert moved.all_statuses().tolist() == [OK, NOT_FOUND]
    assert served.core.engine.dues(sequences(1)).tolist() == [due_ms]


def test_another_sender_s_message_is_as_one_that_never_was(served: Served) -> None:
    served.send([b"c"], keys=["mine"], senders=of_runs([("shop", 1)]))
    answer = renamed(served, sequences=sequences(0, 2), cancel=True, owner="shop")
    assert answer.all_statuses().tolist() == [NOT_FOUND, OK]
    keys = pa.array(["k"])
    by_key = renamed(
        served, keys=keys, key_hashes=hash_column(text_column(keys)), cancel=True, owner="shop"
    )
    assert by_key.all_ids().tolist() == [-1]  # nor is its id told
