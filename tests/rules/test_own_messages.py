"""Own messages (semantics, "Senders"): a caller who is limited to what it sent reaches that alone,
whatever happened to it since.

Which calls a grant of own messages opens, on each door, is in tests/integration; random orders of
two senders are in tests/model and tests/simulation.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dejaqueue.access.senders import NOBODY, Requester, Sender
from dejaqueue.broker.calls.cron import CronCalls
from dejaqueue.broker.partition.requests import EnqueueRequest
from dejaqueue.engine.arrays import Words
from dejaqueue.model import RowStatus, Topic, TopicKind
from dejaqueue.schema.checks import check_send
from dejaqueue.schema.cron import CronEntry
from dejaqueue.wire.frames import SettleOp
from tests.patience import PATIENCE_SECONDS
from tests.rules.broker_fixture import BrokerFixture
from tests.rules.conftest import MakeBroker

A, B = Sender("a", own=True), Sender("b", own=True)
A_ALL, B_ALL = Sender("a"), Sender("b")
OK, NOT_FOUND, LEASED = RowStatus.OK, RowStatus.NOT_FOUND, RowStatus.LEASED
DUPLICATE, KEPT = RowStatus.DUPLICATE, RowStatus.KEPT


def sent(broker: BrokerFixture, sender: Sender, *names: str, after_ms: int = 1_000) -> list[int]:
    """Send messages with these keys as payloads; their ids."""
    dues_ms = [broker.now_ms + after_ms] * len(names)
    payloads = [name.encode() for name in names]
    reply = broker.send(payloads, dues_ms, list(names), sender=sender)
    return [int(one) for one in reply.all_ids()]


def change(broker: BrokerFixture, op: str, by: str, names: list[Any], sender: Sender) -> Any:
    columns: dict[str, Any] = {by: pa.array(names)}
    if op == "move":
        columns["due"] = pa.array([broker.now_ms + 500] * len(names))
    reply = broker.write(op, columns, sender=sender)
    return reply.all_statuses().tolist(), reply.all_ids().tolist()


def payloads(broker: BrokerFixture, sender: Sender = NOBODY, **ticket: Any) -> list[bytes]:
    return sorted(row["payload"] for row in broker.peek(sender=sender, **ticket))


@pytest.mark.one_broker("senders are API keys (tests/cluster/test_keys.py)")
@pytest.mark.parametrize("op", ["move", "cancel"])
def test_anothers_message_is_answered_as_one_that_never_was(
    make_broker: MakeBroker, op: str
) -> None:
    broker = make_broker()
    [mine, late] = sent(broker, A, "mine", "late")
    [theirs] = sent(broker, B, "theirs")
    [nobodys] = sent(broker, NOBODY, "nobodys")
    never = theirs + 1_000
    statuses, ids = change(broker, op, "id", [theirs, never, nobodys, mine], A)
    assert statuses == [NOT_FOUND, NOT_FOUND, NOT_FOUND, OK]
    assert ids == [theirs, never, nobodys, mine]  # whoever names an id gets it back, always
    statuses, ids = change(broker, op, "key", ["theirs", "never", "nobodys", "late"], A)
    assert statuses == [NOT_FOUND, NOT_FOUND, NOT_FOUND, OK]
    assert ids == [-1, -1, -1, late]
    left = [b"nobodys", b"theirs"]
    assert payloads(broker) == (left if op == "cancel" else sorted([*left, b"mine", b"late"]))
    assert all(row["due"] == broker.now_ms + 1_000 for row in broker.peek(ids=[theirs, nobodys]))
    statuses, _ = change(broker, op, "id", [theirs, nobodys], A_ALL)
    assert statuses == [OK, OK]


@pytest.mark.one_broker("senders are API keys (tests/cluster/test_keys.py)")
def test_what_is_leased_is_said_of_ones_own_alone(make_broker: MakeBroker) -> None:
    broker = make_broker()
    [mine] = sent(broker, A, "mine", after_ms=0)
    [theirs] = sent(broker, B, "theirs", after_ms=0)
    assert sorted(broker.consumer().payloads()) == [b"mine", b"theirs"]
    assert change(broker, "cancel", "id", [mine, theirs], A)[0] == [LEASED, NOT_FOUND]


@pytest.mark.one_broker("senders are API keys (tests/cluster/test_keys.py)")
@pytest.mark.parametrize("on_duplicate", ["reject", "keep", "replace"])
def test_a_key_that_another_one_has_is_refused_and_nothing_said_of_its_message(
    make_broker: MakeBroker, on_duplicate: str
) -> None:
    broker = make_broker(on_duplicate=on_duplicate)
    sent(broker, B, "k")
    [own] = sent(broker, A, "own")

    def again(sender: Sender, **stream: Any) -> tuple[list[int], list[int]]:
        dues = [broker.now_ms + 9_000] * 3
        reply = broker.send([b"1", b"2", b"3"], dues, ["k", "own", "k"], sender=sender, **stream)
        return reply.all_statuses().tolist(), reply.all_ids().tolist()

    statuses, ids = again(A, producer="p")
    assert (statuses[0], statuses[2]) == (DUPLICATE, DUPLICATE)
    assert (ids[0], ids[2]) == (-1, -1)
    expected = {"reject": DUPLICATE, "keep": KEPT, "replace": OK}[on_duplicate]
    assert statuses[1] == expected
    assert (ids[1] == own) == (on_duplicate != "replace")
    assert b"k" in payloads(broker)
    assert again(A, producer="p") == (statuses, ids)  # its first answer
    statuses, ids = again(A_ALL)
    assert -1 not in ids
    assert (b"k" in payloads(broker)) == (on_duplicate != "replace")


@pytest.mark.one_broker("looks into a broker")
def test_keys_of_two_senders_in_one_step_do_not_meet(make_broker: MakeBroker) -> None:
    broker = make_broker(on_duplicate="replace")
    place = broker.broker.runtime("t").partitions[0]
    broker.settle_down()
    go = broker.now_ms
    taken: list[Any] = []
    for sender in (A, B):
        batch = pa.record_batch({"payload": [sender.name.encode()], "key": ["k"], "due": [go + 9]})
        columns = check_send(batch, broker.broker.topic("t"), go)
        senders = Words((sender.name,), np.zeros(1, dtype=np.int32))
        request = EnqueueRequest(columns, "", 1, "all", taken.append, None, None)
        request.senders, request.owner = senders, sender.owner
        place.put(request)
    place.ring()
    broker.settle_down()
    assert [reply.all_statuses().tolist() for reply in taken] == [[OK], [DUPLICATE]]
    assert [int(reply.all_ids()[0]) for reply in taken][1] == -1
    assert payloads(broker) == [b"a"]


@pytest.mark.one_broker("senders are API keys (tests/cluster/test_keys.py)")
def test_filters_counts_and_looks_see_ones_own(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=2)
    sent(broker, A, *(f"a{n}" for n in range(20)))
    sent(broker, B, *(f"b{n}" for n in range(30)), after_ms=0)
    sent(broker, NOBODY, "n")
    broker.settle_down()
    mine = sorted(f"a{n}".encode() for n in range(20))
    assert payloads(broker, A) == payloads(broker, A, state="scheduled") == mine
    assert payloads(broker, A, keys=["a1", "b1", "n"]) == [b"a1"]
    assert payloads(broker, Sender("c", own=True)) == []
    call = {"topic": "t"}
    rows = broker.broker.call("counts", call, Requester(A))["rows"]
    assert {row["state"]: row["count"] for row in rows} == {
        "scheduled": 20, "ready": 0, "leased": 0, "dead": 0, "staged": 0, "staged_ack": 0,
    }  # fmt: skip
    span = {"due_from": 0, "due_to": broker.now_ms + 10_000, "bucket_ms": 1 << 40}
    assert sum(broker.broker.call("histogram", call | span, Requester(B))["counts"]) == 30
    assert (
        sum(broker.broker.call("histogram", call | span | {"exact": False}, Requester(B))["counts"])
        == 30
    )
    assert broker.broker.call("cancel_where", call | {"dry_run": True}, Requester(A))["count"] == 20
    assert broker.broker.call("move_where", call | {"by_ms": 5}, Requester(B))["count"] == 30
    assert broker.broker.call("cancel_where", call, Requester(A))["count"] == 20
    assert payloads(broker, A) == []
    assert len(payloads(broker)) == 31


@pytest.mark.one_broker("senders are API keys (tests/cluster/test_keys.py)")
def test_pages_by_time_are_whole__whatever_lies_between(make_broker: MakeBroker) -> None:
    broker = make_broker(partitions=2)
    now = broker.now_ms
    for number in range(40):
        sent(broker, A if number % 10 == 0 else B, f"{number:02}", after_ms=1_000 + number)
    found: list[bytes] = []
    after = None
    for _ in range(100):
        page = next(
            broker.broker.read("peek", {"topic": "t", "limit": 1, "after": after}, Requester(A))[1]
        )
        found += page.column("payload").to_pylist()
        after = (page.schema.metadata or {}).get(b"next")
        if after is None:
            break
        after = json.loads(after)
    assert (found, now) == ([b"00", b"10", b"20", b"30"], broker.now_ms)


@pytest.mark.one_broker("has settings of its own")
@pytest.mark.parametrize("snapshot_entries", [3, 20_000])
def test_a_message_stays_its_senders__over_restarts_and_snapshots(
    on_files: MakeBroker, snapshot_entries: int
) -> None:
    broker = on_files(snapshot_entries=snapshot_entries)
    ids = {who.name: sent(broker, who, f"{who.name}1", f"{who.name}2") for who in (A, B)}
    for number in range(5):
        sent(broker, A, f"more{number}")
    broker.wait_for_snapshots()
    broker.crash()
    assert change(broker, "move", "id", ids["a"] + ids["b"], A)[0] == [OK, OK, NOT_FOUND, NOT_FOUND]
    broker.restart()
    assert change(broker, "cancel", "id", ids["a"] + ids["b"], B)[0] == [
        NOT_FOUND, NOT_FOUND, OK, OK,
    ]  # fmt: skip


@pytest.mark.one_broker("senders are API keys (tests/cluster/test_keys.py)")
def test_a_lease_and_a_nack_leave_it_its_senders(make_broker: MakeBroker) -> None:
    broker = make_broker()
    [mine] = sent(broker, A, "mine", after_ms=0)
    consumer = broker.consumer()
    [got] = consumer.take_all()
    consumer.settle(SettleOp.NACK, partition=0, lease_id=got.lease_id, argument_ms=60_000)
    assert change(broker, "cancel", "id", [mine], B)[0] == [NOT_FOUND]
    assert change(broker, "cancel", "id", [mine], A)[0] == [OK]


@pytest.mark.one_broker("senders are API keys (tests/cluster/test_keys.py)")
def test_dead_letters_and_what_comes_back_of_them_stay_their_senders(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(max_attempts=1)
    for number in range(3):
        sent(broker, A, f"a{number}", after_ms=0)
        sent(broker, B, f"b{number}", after_ms=0)
    consumer = broker.consumer()
    dead = 0
    for got in consumer.take_all():
        consumer.settle(
            SettleOp.NACK, partition=got.partition, lease_id=got.lease_id, argument_ms=0
        )
        dead += 1
    broker.letters_arrive(dead)
    letters = broker.peek("t.dead", sender=A)
    assert sorted(row["payload"] for row in letters) == [b"a0", b"a1", b"a2"]
    assert len(broker.peek("t.dead")) == 6
    consumer.session.close(release=True)
    assert broker.broker.call("redrive", {"topic": "t.dead"})["moved"] == 6
    broker.letters_arrive(1)
    assert payloads(broker, A) == [b"a0", b"a1", b"a2"]
    assert payloads(broker, B) == [b"b0", b"b1", b"b2"]


@pytest.mark.one_broker("senders are API keys (tests/cluster/test_keys.py)")
def test_what_is_sent_in_a_transaction_is_its_senders(make_broker: MakeBroker) -> None:
    broker = make_broker()
    transactions = broker.broker.transactions
    name = transactions.begin("t", 10_000, sender=A)["transaction"]
    broker.send([b"x"], [broker.now_ms + 10], ["x"], transaction=name, sender=A)
    transactions.decide(name, ["t/0"], commit=True, sender=A).result(PATIENCE_SECONDS)
    assert change(broker, "cancel", "key", ["x"], B)[0] == [NOT_FOUND]
    assert change(broker, "cancel", "key", ["x"], A)[0] == [OK]


@pytest.mark.one_broker("senders are API keys (tests/cluster/test_keys.py)")
def test_firings_are_those_of_who_put_the_entry(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.broker.create_topic(Topic("c", kind=TopicKind.CRON))
    for sender in (A, B):
        entry = CronEntry(sender.name, every_ms=60_000, payload=sender.name.encode()).to_dict()
        broker.broker.call("cron_put", {"topic": "c", "entries": [entry]}, Requester(sender))
    for paused in (True, False):  # by another one: it stays whose it was
        body = {"topic": "c", "names": ["a"], "paused": paused}
        broker.broker.call("cron_pause", body, Requester(B))
    broker.advance(60_000)
    assert [row["payload"] for row in broker.peek("c", sender=A)] == [b"a"]
    broker.broker.call("cron_run", {"topic": "c", "name": "a"}, Requester(B))
    assert [row["payload"] for row in broker.peek("c", sender=A)] == [b"a", b"a"]
    calls = CronCalls(broker.broker.runtime("c"))
    assert "sender" not in calls.get("a").to_dict()
    with pytest.raises(Exception, match="entry.sender"):
        entry = {"name": "x", "every_ms": 60_000, "sender": "b"}
        broker.broker.call("cron_put", {"topic": "c", "entries": [entry]}, Requester(A))


@pytest.mark.one_broker("senders are API keys (tests/cluster/test_keys.py)")
def test_nobody_owns_nothing(make_broker: MakeBroker) -> None:
    broker = make_broker()
    [nobodys] = sent(broker, NOBODY, "n")
    nobody = Sender("", own=True)
    assert change(broker, "cancel", "id", [nobodys], nobody)[0] == [NOT_FOUND]
    assert payloads(broker, nobody) == []
