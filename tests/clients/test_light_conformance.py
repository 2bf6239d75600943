"""Covers: the light client does what DejaQ's own does: one table of cases, at one real broker.

Not covered: broken connections (test_light_reconnects.py), that it needs nothing but httpx
(test_light_alone.py), its wheel (tests/cli/test_light_wheel.py).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dejaqueue.clock import SystemClock
from dejaqueue.settings import HistorySettings
from tests.clients.light_faces import FACES, counted, face_of, refusal
from tests.integration.access_fixture import Site, running
from tests.patience import until

Case = Callable[[Any], None]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Have it in the table."""
    CASES[function.__name__] = function
    return function


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    place = str(tmp_path_factory.mktemp("history"))
    with running(history=HistorySettings(directory=place)) as served:
        yield served


@pytest.fixture
def clean(site: Site) -> Iterator[Site]:
    """The broker without topics."""
    yield site
    for topic in site.broker.topics():
        site.broker.delete_topic(topic.name)


def names(statuses: Any) -> list[str]:
    """Statuses by their names."""
    from dejaqueue import RowStatus

    return [RowStatus(int(status)).name for status in statuses]


def numbers(column: Any) -> list[int]:
    return [int(one) for one in column]


def now_ms() -> int:
    return SystemClock().now_ms()


def payloads(client: Any, topic: str, count: int, **options: Any) -> list[bytes]:
    """Payloads of so many messages, which are acked."""
    found = []
    for message in client.consume(topic, max_messages=count, **options):
        found.append(message.payload)
        message.ack()
    return found


def drained(client: Any, topic: str, **options: Any) -> list[bytes]:
    """Payloads of what is there, which is acked."""
    found = []
    for message in client.consume(topic, idle_ms=300, **options):
        found.append(message.payload)
        message.ack()
    return found


@contextmanager
def first_and_second(client: Any) -> Iterator[tuple[Any, Any]]:
    """A message whose lease has ended, and the same one as somebody else has it since."""
    alone = {"auto_extend": False, "prefetch": 1, "until_settled": True}
    with client.consume("t", **alone) as one, client.consume("t", lease_ms=600_000) as other:
        first = next(one)
        yield first, next(other)


def columns(found: Any) -> list[dict[str, Any]]:
    """Rows of a peek, which is a table in one client and a list in the other."""
    if hasattr(found, "to_pylist"):
        return [
            {"id": row["id"], "state": row["state"], "payload": row["payload"], "due": row["due"],
             "attempts": row["attempts"], "headers": dict(row["headers"] or ())}
            for row in found.to_pylist()
        ]  # fmt: skip
    return [
        {"id": one.id, "state": one.state, "payload": one.payload, "due": one.due_ms,
         "attempts": one.attempts, "headers": dict(one.headers)}
        for one in found
    ]  # fmt: skip


# --- the table: sending and consuming -----------------------------------------------------------


@case
def a_message_arrives_as_it_was_sent(client: Any) -> None:
    client.create_topic("t")
    due = now_ms() + 60
    more = {"key": "k", "group": "gröup", "priority": 7, "tags": ["a", "b"], "headers": {"h": "ü"}}
    sent = client.send("t", bytes(range(256)), due=due, **more)
    [message] = client.consume("t", max_messages=1)
    assert now_ms() >= due
    assert (message.id, message.payload, message.due_ms) == (sent, bytes(range(256)), due)
    assert (message.key, message.group, message.priority) == ("k", "gröup", 7)
    assert (message.tags, message.headers, message.attempt) == (("a", "b"), {"h": "ü"}, 1)
    assert message.due == datetime.fromtimestamp(due / 1_000, UTC)
    assert message.lateness_us >= 0
    assert names([message.ack(wait=True)]) == ["OK"]
    assert client.stats("t")["acked"] == 1


@case
def a_text_json_and_nothing(client: Any) -> None:
    client.create_topic("t")
    client.send("t", "grün")
    client.send("t", json={"a": [1, None]})
    client.send("t", b"")
    client.send("t", json=None)
    found = list(client.consume("t", max_messages=4))
    assert [one.payload for one in found] == ["grün".encode(), b'{"a":[1,null]}', b"", b"null"]
    assert found[1].json() == {"a": [1, None]}
    assert refusal(found[2].json)[0] == "BadRequest"
    for one in found:
        one.ack()


@case
def many_at_once_each_with_its_status(client: Any) -> None:
    client.create_topic("t")
    rows = [
        {"payload": b"one", "key": "k"},
        "two",
        b"\xff",
        {"json": 4, "delay": 3_600, "ttl": timedelta(days=1), "tags": ["x"], "priority": 0},
        {"payload": "five", "key": "k"},
    ]
    result = client.send_batch("t", rows)
    assert names(result.statuses) == ["OK", "OK", "OK", "OK", "DUPLICATE"]
    ids = numbers(result.ids)
    assert ids[4] == ids[0]
    assert not result.ok
    assert refusal(result.raise_for_status)[0] == "DuplicateKey"
    assert sorted(payloads(client, "t", 3)) == [b"one", b"two", b"\xff"]
    view = client.get("t", id=ids[3])
    assert (view.state, view.tags, view.priority, view.json()) == ("scheduled", ("x",), 0, 4)
    assert 3_500_000 < view.due_ms - now_ms() <= 3_600_000
    assert numbers(client.send_batch("t", []).ids) == []


@case
def ten_thousand_in_one_call(client: Any) -> None:
    client.create_topic("t")
    result = client.send_batch("t", (b"%d" % n for n in range(10_000)))
    assert len(set(numbers(result.ids))) == 10_000
    seen: list[int] = []
    for batch in client.consume_batches("t", max_messages=10_000, batch_rows=4_000):
        seen += numbers(batch.ids)
        assert batch.ack().ok
    assert sorted(seen) == sorted(numbers(result.ids))
    assert counted(client, "t") == {}


@case
def a_megabyte_that_is_no_text(client: Any) -> None:
    client.create_topic("t", max_payload_bytes=4 << 20)
    large = bytes(range(256)) * (3 << 12)
    client.send("t", large)
    assert payloads(client, "t", 1) == [large]


@case
def a_key_is_there_once(client: Any) -> None:
    client.create_topic("t")
    first = client.send("t", "a", key="k", delay=60)
    kind, text = refusal(lambda: client.send("t", "b", key="k"))
    assert (kind, str(first) in text) == ("DuplicateKey", True)
    client.alter_topic("t", on_duplicate="keep")
    assert client.send("t", "c", key="k") == first
    client.alter_topic("t", on_duplicate="replace")
    assert client.send("t", "d", key="k") != first
    assert payloads(client, "t", 1) == [b"d"]


@case
def nacks_and_dead_letters(client: Any) -> None:
    client.create_topic("t", max_attempts=2)
    client.send("t", "x", headers={"own": "1"})
    for message in client.consume("t", max_messages=2):
        assert names([message.nack(reason="mail is down")]) == ["OK"]
    until(lambda: client.stats("t")["buried"] == 1, "the letter arrived")
    [letter] = columns(client.dead_letters("t.dead"))
    assert letter["headers"]["dejaq-dead-reason"] == "mail is down"
    assert (letter["headers"]["dejaq-dead-attempts"], letter["headers"]["own"]) == ("2", "1")
    assert columns(client.dead_letters("t.dead", reason="another")) == []
    assert client.redrive("t.dead").moved == 1
    until(lambda: counted(client, "t") == {"scheduled": 1}, "it is back")
    [message] = client.consume("t", max_messages=1)
    assert message.attempt == 1
    message.nack(dead=True, reason="never")
    until(lambda: counted(client, "t.dead") == {"scheduled": 1}, "it is dead")
    assert client.purge_letters("t.dead", reason="another") == 0
    assert client.purge_letters("t.dead") == 1


@case
def a_nack_with_a_delay_comes_later(client: Any) -> None:
    client.create_topic("t")
    client.send("t", "x")
    consumer = client.consume("t", max_messages=2)
    first = next(consumer)
    asked = now_ms()
    first.nack(delay=timedelta(milliseconds=200))
    second = next(consumer)
    assert now_ms() >= asked + 200
    assert (second.id, second.attempt) == (first.id, 2)
    second.ack()
    consumer.close()


@case
def a_lease_that_ended_is_lost(client: Any) -> None:
    client.create_topic("t", lease_ms=1_500)
    client.send("t", "x")
    with first_and_second(client) as (first, second):
        assert (second.id, second.attempt) == (first.id, 2)
        assert names([first.ack(wait=True)]) == ["LEASE_LOST"]
        assert names([first.extend(5)]) == ["LEASE_LOST"]
        assert names([second.extend(5)]) == ["OK"]
        assert names([second.ack(wait=True)]) == ["OK"]


@case
def leases_are_extended_while_it_works(client: Any) -> None:
    client.create_topic("t", lease_ms=2_500)  # a busy machine may stand still for a second
    client.send_batch("t", ["a", "b"])
    with client.consume("t") as consumer:
        first = next(consumer)
        until(lambda: client.stats("t")["extended"] >= 4, "extended twice and more")
        assert names([first.ack(wait=True)]) == ["OK"]
        second = next(consumer)
        assert (second.payload, second.attempt) == (b"b", 1)
        assert names([second.ack(wait=True)]) == ["OK"]
    assert client.stats("t")["redelivered"] == 0


@case
def a_message_can_be_extended_by_hand(client: Any) -> None:
    client.create_topic("t", lease_ms=30_000)
    client.send("t", "x")
    [message] = client.consume("t", max_messages=1)
    before = columns(client.peek("t", state="leased"))[0]["due"]
    assert names([message.extend(timedelta(minutes=5))]) == ["OK"]
    assert columns(client.peek("t", state="leased"))[0]["due"] > before + 200_000
    message.ack()


@case
def what_is_not_settled_goes_back_when_it_is_closed(client: Any) -> None:
    client.create_topic("t", lease_ms=600_000)
    client.send_batch("t", ["a", "b", "c"])
    with client.consume("t") as consumer:
        next(consumer).ack()
        next(consumer)
    assert sorted(payloads(client, "t", 2)) == [b"b", b"c"]


@case
def a_block_that_raises_gives_back_its_message_with_the_reason(client: Any) -> None:
    client.create_topic("t", lease_ms=600_000, max_attempts=1)
    client.send("t", "x")
    with pytest.raises(KeyError), client.consume("t") as consumer:
        next(consumer)
        raise KeyError("name")
    until(lambda: counted(client, "t.dead") == {"scheduled": 1}, "it is dead")
    [letter] = columns(client.dead_letters("t.dead"))
    assert letter["headers"]["dejaq-dead-reason"] == "KeyError"


@case
def what_nobody_worked_on_is_not_worn_out(client: Any) -> None:
    client.create_topic("t", lease_ms=600_000, max_attempts=1)
    client.send_batch("t", [f"{n}" for n in range(20)])
    with client.consume("t") as consumer:  # it fetches more than one
        assert next(consumer).payload == b"0"
    until(lambda: counted(client, "t").get("leased", 0) == 0, "given back")
    found = [one.payload for one in client.consume("t", idle_ms=300, auto_ack=True)]
    assert sorted(found, key=int) == [f"{n}".encode() for n in range(20)]


@case
def at_most_once_where_it_is_asked_for(client: Any) -> None:
    client.create_topic("t", lease_ms=100)
    client.send_batch("t", ["a", "b", "c"])
    found = list(client.consume("t", auto_ack=True, idle_ms=300))
    assert [one.payload for one in found] == [b"a", b"b", b"c"]
    assert names([found[0].ack(wait=True)]) == ["OK"]
    assert refusal(found[0].nack)[0] == "BadRequest"
    assert counted(client, "t") == {}


@case
def tags_choose(client: Any) -> None:
    client.create_topic("t")
    client.send_batch("t", [{"payload": t, "tags": [*t]} for t in ("a", "ab", "b", "c")])
    assert drained(client, "t", tags_all=["a", "b"]) == [b"ab"]
    assert drained(client, "t", tags_any=["a", "b"], tags_none=["b"]) == [b"a"]
    assert drained(client, "t") == [b"b", b"c"]


@case
def nothing_comes_for_a_while(client: Any) -> None:
    client.create_topic("t")
    client.send("t", "x", delay=60)
    began = now_ms()
    assert list(client.consume("t", idle_ms=150)) == []
    assert now_ms() - began >= 150
    assert list(client.consume("t", max_messages=0)) == []


@case
def what_is_at_work_counts_where_it_should(client: Any) -> None:
    client.create_topic("t")
    client.send_batch("t", ["a", "b", "c"])
    with client.consume("t", prefetch=2, until_settled=True, idle_ms=200) as one:
        held = [next(one), next(one)]
        assert [message.payload for message in held] == [b"a", b"b"]
        assert counted(client, "t") == {"leased": 2, "scheduled": 1}
        held[0].ack()
        assert next(one).payload == b"c"


@case
def a_batch_is_settled_as_one_or_one_by_one(client: Any) -> None:
    client.create_topic("t")
    client.send_batch("t", ["a", "b"])
    consumer = client.consume_batches("t", max_messages=4)
    batch = next(consumer)
    assert len(batch) == 2
    assert names(batch.extend(60).statuses) == ["OK", "OK"]
    assert names(batch.nack().statuses) == ["OK", "OK"]
    again = next(consumer)
    assert numbers(again.attempts) == [2, 2]
    for message in again.messages():
        message.ack(wait=True)
    consumer.close()
    assert client.stats("t")["acked"] == 2


@case
def run_works_on_several_at_the_same_time(client: Any) -> None:
    client.create_topic("t", max_attempts=1)
    client.send_batch("t", ["a", "b", "bad"])
    together, seen = threading.Barrier(3), []

    def work(message: Any) -> None:
        together.wait(60)
        seen.append(message.payload)
        if message.payload == b"bad":
            raise ValueError("no good")

    client.run("t", work, concurrency=3, max_messages=3)
    assert sorted(seen) == [b"a", b"b", b"bad"]
    until(lambda: counted(client, "t.dead") == {"scheduled": 1}, "one is dead")
    [letter] = columns(client.dead_letters("t.dead"))
    assert letter["headers"]["dejaq-dead-reason"].startswith("ValueError: no good")
    assert client.stats("t")["acked"] == 2


@case
def a_drain_ends_it_and_gives_back_what_is_held(client: Any) -> None:
    client.create_topic("t", lease_ms=600_000)
    client.send_batch("t", ["a", "b"])
    with client.consume("t") as consumer:
        message = next(consumer)
        consumer.drain()
        assert list(consumer) == []
        message.ack()
    assert payloads(client, "t", 1) == [b"b"]


@case
def a_drain_ends_a_wait(client: Any) -> None:
    client.create_topic("t")
    ended = threading.Event()

    def consume() -> None:
        list(client.consume("t"))
        ended.set()

    waiting = threading.Thread(target=consume, daemon=True)
    waiting.start()
    until(lambda: client.stats("t")["consumers"], "it waits")
    client.drain()
    assert ended.wait(60)


@case
def exclusive_partitions_are_one_consumers(client: Any) -> None:
    client.create_topic("t", assignment="exclusive", partitions=2)
    with client.consume("t", name="one", idle_ms=0) as one:
        list(one)
    assert client.assignments("t")["assignment"] == "exclusive"


# --- the table: changing and looking -----------------------------------------------------------


@case
def moves_by_id_key_and_filter(client: Any) -> None:
    client.create_topic("t")
    due = now_ms() + 3_600_000
    ids = numbers(
        client.send_batch("t", [{"payload": c, "key": c, "due": due} for c in "abcd"]).ids
    )
    assert names([client.move("t", id=ids[0], due=due + 1_000)]) == ["OK"]
    assert client.get("t", key="a").due_ms == due + 1_000
    assert names([client.move("t", key="a", by=-1, if_due=due + 5)]) == ["CHANGED"]
    assert names([client.move("t", key="a", by=-1)]) == ["OK"]
    assert client.get("t", key="a").due_ms == due
    settled = client.move("t", keys=["a", "no"], delay=[7_200, 1], priority=3)
    assert names(settled.statuses) == ["OK", "NOT_FOUND"]
    view = client.get("t", key="a")
    assert (view.priority, view.due_ms > due + 3_000_000) == (3, True)
    assert client.move_where("t", due_to=due + 1, set_group="g", dry_run=True) == 3
    assert client.move_where("t", due_to=due + 1, by=timedelta(seconds=5), set_group="g") == 3
    assert client.counts("t", by="group") == {"g": 3}
    assert client.move_where("t", group="g", window=(due, due + 300)) == 3
    assert names([client.move("t", id=ids[1], delay=0)]) == ["OK"]
    assert payloads(client, "t", 1) == [b"b"]


@case
def cancels_by_id_key_and_filter(client: Any) -> None:
    client.create_topic("t")
    rows = [
        {"payload": c, "key": c, "delay": 60, "tags": ["x"] if c > "c" else []} for c in "abcde"
    ]
    ids = numbers(client.send_batch("t", rows).ids)
    assert names([client.cancel("t", id=ids[0])]) == ["OK"]
    assert names([client.cancel("t", id=ids[0])]) == ["NOT_FOUND"]
    assert names(client.cancel("t", keys=["b", "a"]).statuses) == ["OK", "NOT_FOUND"]
    assert names([client.cancel("t", key="c", if_due=now_ms())]) == ["CHANGED"]
    assert client.cancel_where("t", tags_any=["x"], dry_run=True) == 2
    assert client.cancel_where("t", tags_any=["x"]) == 2
    assert client.purge("t") == 1
    client.send("t", "now")
    [message] = client.consume("t", max_messages=1)
    assert names([client.cancel("t", id=message.id)]) == ["LEASED"]
    assert names(client.nack("t", ids=[message.id], attempts=[message.attempt]).statuses) == ["OK"]
    assert names([message.ack(wait=True)]) == ["LEASE_LOST"]


@case
def looks_without_taking(client: Any) -> None:
    client.create_topic("t")
    due = now_ms() // 60_000 * 60_000 + 3_600_000
    rows = [{"payload": b"%d" % n, "due": due + 60_000 * (n % 3), "group": f"g{n % 2}"}
            for n in range(30)]  # fmt: skip
    ids = numbers(client.send_batch("t", rows).ids)
    found = columns(client.peek("t", due_from=due + 60_000, due_to=due + 120_000, group="g1"))
    assert [row["payload"] for row in found] == [b"1", b"7", b"13", b"19", b"25"]
    assert {row["state"] for row in found} == {"scheduled"}
    assert len(client.peek("t", limit=7)) == 7
    assert sorted(row["id"] for row in columns(client.peek("t", ids=ids))) == sorted(ids)
    assert client.get("t", key="no") is None
    assert client.counts("t", by="group") == {"g0": 15, "g1": 15}
    histogram = client.histogram("t", bucket=60, due_from=due, due_to=due + 180_000)
    assert numbers(histogram.counts) == [10, 10, 10]
    assert numbers(histogram.dues_ms) == [due, due + 60_000, due + 120_000]
    stats = client.stats("t")
    assert (stats["scheduled"], stats["ready"], stats.next_due_ms) == (30, 0, due)
    assert "t" in client.stats().topics


@case
def a_messages_history(client: Any) -> None:
    client.create_topic("t", history=True)
    message_id = client.send("t", "x", key="k")
    payloads(client, "t", 1)
    until(
        lambda: (
            [one.change for one in client.history("t", message_id).changes]
            == ["enqueued", "delivered", "acked"]
        ),
        "its life is recorded",
    )
    assert client.history("t", message_id).is_on
    client.create_topic("u")
    assert not client.history("u", 5).is_on


# --- the table: topics, subscriptions, cron, transactions, keys --------------------------------


@case
def topics_are_made_changed_and_deleted(client: Any) -> None:
    made = client.create_topic("t", lease_ms=5_000, kind="fair", weights={"gold": 3})
    assert (made.name, made.lease_ms, made.weights) == ("t", 5_000, {"gold": 3})
    assert client.create_topic("t", lease_ms=5_000, kind="fair", weights={"gold": 3}) == made
    assert refusal(lambda: client.create_topic("t"))[0] == "TopicExists"
    assert (
        refusal(lambda: client.create_topic("t", kind="fair", exist_ok=False))[0] == "TopicExists"
    )
    assert client.alter_topic("t", max_attempts=7).max_attempts == 7
    assert client.pause_topic("t").paused
    assert not client.resume_topic("t").paused
    assert client.topic("t").max_attempts == 7
    assert [one.name for one in client.topics()] == ["t"]
    client.delete_topic("t")
    assert client.topics() == []
    assert refusal(lambda: client.topic("t"))[0] == "TopicUnknown"
    client.connect()
    assert client.cluster()["nodes"] == []


@case
def subscriptions_each_get_all(client: Any) -> None:
    client.create_topic("t", retention_ms=3_600_000)
    settings = client.create_subscription("t", "log", order="arrival", lease_ms=7_000)
    assert (settings["order"], settings["start"], settings["lease_ms"]) == ("arrival", "new", 7_000)
    client.send_batch("t", ["a", "b"])
    assert payloads(client, "t", 2) == [b"a", b"b"]
    assert payloads(client, "t", 2, subscription="log") == [b"a", b"b"]
    assert client.stats("t@log")["acked"] == 2
    assert client.seek("t", "log", to="beginning").replayed == 2
    assert client.seek("t", "log", to="end").passed == 2
    assert list(client.subscriptions("t")) == ["log"]
    assert refusal(lambda: next(client.consume("t", subscription="no")))[0] == "TopicUnknown"
    client.delete_subscription("t", "log")
    assert client.subscriptions("t") == {}


@case
def cron_entries(client: Any) -> None:
    client.create_topic("c", kind="cron")
    cron = client.cron("c")
    start = datetime(2030, 1, 1, tzinfo=UTC)
    made = cron.put("daily", cron="0 9 * * *", zone="Europe/Berlin", payload=b"\xff", start=start)
    assert made.next_ms == int(datetime(2030, 1, 1, 8, tzinfo=UTC).timestamp() * 1_000)
    assert (made.payload, made.last_id) == (b"\xff", -1)
    assert cron.put("often", every_ms=3_600_000, tags=("x",), payload=b"text").every_ms == 3_600_000
    assert [one.name for one in cron.entries()] == ["daily", "often"]
    assert [one.name for one in cron.page(after="daily")] == ["often"]
    assert cron.get("daily") == made
    assert [one.paused for one in cron.pause("daily", "often")] == [True, True]
    assert [one.paused for one in cron.resume("often")] == [False]
    assert cron.next_ms("daily", 2, after=start)[1] - made.next_ms == 86_400_000
    assert len(cron.preview_ms(made, 3)) == 3
    fired = cron.run("often")
    [message] = client.consume("c", max_messages=1)
    assert (message.id, message.payload, message.tags) == (fired, b"text", ("x",))
    message.ack()
    assert cron.drop("daily", "no") == 1
    assert refusal(lambda: cron.get("daily"))[0] == "BadRequest"


@case
def a_transaction_counts_as_a_whole(client: Any) -> None:
    client.create_topic("t")
    client.create_topic("u", partitions=3)
    client.send_batch("t", ["a", "b"])
    consumer = client.consume("t", max_messages=2)
    first, second = next(consumer), next(consumer)
    with client.transaction() as transaction:
        transaction.send("u", "x", key="k")
        assert len(transaction.send_batch("u", ["y", "z"]).ids) == 2
        assert transaction.ack(first).ok
        assert counted(client, "u") == {"staged": 3}
        assert [one["staged"] for one in client.transactions("u") if one["staged"]] != []
    assert counted(client, "u") == {"scheduled": 3}
    with pytest.raises(KeyError), client.transaction() as transaction:
        transaction.send("u", "never")
        transaction.ack([second])
        raise KeyError
    consumer.close()
    assert payloads(client, "t", 1) == [b"b"]
    assert counted(client, "u") == {"scheduled": 3}
    assert refusal(transaction.commit)[0] == "Refused"


@case
def an_ack_of_a_transaction_needs_its_lease(client: Any) -> None:
    client.create_topic("t", lease_ms=100)
    client.send("t", "a")
    with first_and_second(client) as (message, second):
        second.ack(wait=True)
        transaction = client.transaction()
        assert refusal(lambda: transaction.ack(message))[0] == "Refused"
        assert refusal(transaction.commit)[0] == "Refused"


# The table is full: the one test that runs it.


@pytest.mark.parametrize("kind", FACES)
@pytest.mark.parametrize("name", list(CASES))
def test_the_clients_do_the_same(clean: Site, kind: str, name: str) -> None:
    check = CASES[name]
    with face_of(kind, clean) as client:
        check(client)


BAD_CALLS: dict[str, Callable[[Any], object]] = {
    "no such topic": lambda c: c.send("no", "x"),
    "a name near": lambda c: c.topic("tt"),
    "topic": lambda c: c.create_topic("a b"),
    "setting": lambda c: c.create_topic("n", lease_sm=5),
    "setting's value": lambda c: c.create_topic("n", lease_ms=1),
    "fixed setting": lambda c: c.alter_topic("t", kind="fair"),
    "payload": lambda c: c.send("t", 5),
    "payload and json": lambda c: c.send("t", "x", json=1),
    "no payload": lambda c: c.send("t"),
    "json": lambda c: c.send("t", json={"a": {1, 2}}),
    "due without a zone": lambda c: c.send("t", "x", due=datetime(2030, 1, 1)),
    "due in seconds": lambda c: c.send("t", "x", due=1_800_000_000),
    "due and delay": lambda c: c.send("t", "x", due=0, delay=5),
    "delay": lambda c: c.send("t", "x", delay=-1),
    "expires and ttl": lambda c: c.send("t", "x", expires=now_ms() + 5, ttl=5),
    "key": lambda c: c.send("t", "x", key=""),
    "key's length": lambda c: c.send("t", "x", key="k" * 300),
    "priority": lambda c: c.send("t", "x", priority=70_000),
    "tags": lambda c: c.send("t", "x", tags="abc"),
    "headers": lambda c: c.send("t", "x", headers={"a": 5}),
    "a batch's field": lambda c: c.send_batch(
        "t", [{"payload": "x"}, {"payload": "x", "colour": 1}]
    ),
    "a batch's value": lambda c: c.send_batch("t", ["x", {"payload": "x", "priority": "high"}]),
    "move nothing": lambda c: c.move("t", id=5),
    "move two": lambda c: c.move("t", id=5, key="k", due=0),
    "move twice": lambda c: c.move("t", id=5, due=0, by=1),
    "move's rows": lambda c: c.move("t", ids=[1, 2], delay=[1]),
    "lease": lambda c: c.consume("t", max_messages=1, lease_ms=1),
    "prefetch": lambda c: c.consume("t", prefetch=0),
    "filter": lambda c: c.peek("t", colour="red"),
    "state": lambda c: c.peek("t", state="gone"),
    "change what is leased": lambda c: c.cancel_where("t", state="leased"),
    "get": lambda c: c.get("t"),
    "histogram": lambda c: c.histogram("t", bucket=60),
    "cron of a timeline": lambda c: c.cron("t").put("x", cron="* * * * *"),
    "cron": lambda c: c.cron("cron").put("x", cron="never"),
    "cron's field": lambda c: c.cron("cron").put("x", colour="red"),
    "subscription": lambda c: c.create_subscription("t", "s", colour="red"),
    "seek": lambda c: c.seek("t", to="nowhere"),
    "timeout": lambda c: c.transaction(timeout=10_000),
    "redrive": lambda c: c.redrive("no.dead"),
}
OTHER_TEXTS = {"payload", "key's length", "cron's field", "move's rows", "prefetch", "histogram"}
"""Where the two say the same in other words: the class is compared alone."""


def test_they_refuse_with_the_same_words(site: Site) -> None:
    with face_of("flight", site) as one, face_of("light", site) as other:
        one.create_topic("t")
        one.create_topic("cron", kind="cron")
        differ = {}
        for name, call in BAD_CALLS.items():
            found = [refusal(lambda c=c, call=call: call(c)) for c in (one, other)]  # type: ignore[misc]
            shown = [kind if name in OTHER_TEXTS else (kind, text) for kind, text in found]
            if shown[0] != shown[1]:
                differ[name] = found
        for topic in ("t", "cron"):
            one.delete_topic(topic)
    assert differ == {}


def test_a_signal_ends_a_program_that_waits(clean: Site) -> None:
    with face_of("light", clean) as client:
        client.create_topic("t")
        client.send("t", "x")
        before = signal.signal(signal.SIGUSR1, lambda *_: client.drain())
        try:
            found = []
            for message in client.consume("t"):
                found.append(message.payload)
                message.ack()
                threading.Timer(0.05, signal.raise_signal, [signal.SIGUSR1]).start()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert found == [b"x"]
        assert client.stats("t")["acked"] == 1
