"""FIFO queues: order in a group, one receive of it at a time, deduplication for five minutes.

What other implementations got wrong, by their public lists of issues: a message that is delayed
blocks its group; one that is sent ends the wait of its group; answers to repeats have the digests
of the first; batches lose groups, trace headers and deduplication; dead letters of a group are
lost, or come back without it.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dejaqueue.access.gate import Gate
from dejaqueue.access.senders import NOBODY
from dejaqueue.broker.broker import Broker
from dejaqueue.http.server import HttpServer
from dejaqueue.http.service import Service
from dejaqueue.http.sqs.fifo import BUCKETS, KNOWN_MAX, WINDOW_SECONDS, Name, RecentMessages
from dejaqueue.http.sqs.rows import attributes_of, body_digest, digest_of
from dejaqueue.setting_groups import SqsSettings
from dejaqueue.settings import BrokerSettings, JournalSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.patience import until
from tests.unit.http.sqs.conftest import Sqs


@pytest.fixture
def url(sqs: Sqs) -> str:
    return sqs.queue("q.fifo", VisibilityTimeout="20")


def put(sqs: Sqs, url: str, body: str, group: str = "g", name: str = "") -> str:
    sent = sqs.send(
        url, body, MessageGroupId=group, MessageDeduplicationId=name or f"{group}-{body}"
    )
    message_id: str = sent["MessageId"]
    return message_id


def test_a_group_waits_for_its_messages__and_others_do_not(sqs: Sqs, url: str) -> None:
    for body in ("1", "2", "3", "4"):
        put(sqs, url, body)
    first = sqs.take(url, 3)
    assert [message["Body"] for message in first] == ["1", "2", "3"], "in order"
    assert sqs.take(url) == []
    put(sqs, url, "other", "h")
    assert sqs.bodies(url) == ["other"]
    for message in first[:2]:
        sqs.delete(url, message)
    assert sqs.take(url) == [], "one of them is in flight"
    sqs.delete(url, first[2])
    assert sqs.bodies(url) == ["4"]


def test_what_is_let_go_comes_first__when_none_of_its_group_is_in_flight(
    sqs: Sqs, url: str
) -> None:
    for body in ("1", "2", "3", "4"):
        put(sqs, url, body)
    first, second, third = sqs.take(url, 3)
    sqs.delete(url, second)
    handle = {"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"]}
    sqs.do("ChangeMessageVisibility", **handle, VisibilityTimeout=0)
    assert sqs.take(url) == []
    sqs.delete(url, third)
    assert sqs.bodies(url) == ["1", "4"]


def test_receives_at_the_same_time_do_not_divide_a_group(sqs: Sqs, url: str) -> None:
    for group in "abcd":
        for body in ("1", "2", "3"):
            put(sqs, url, group + body, group)
    with ThreadPoolExecutor(8) as threads:
        takes = list(threads.map(lambda _: sqs.take(url, 2), range(8)))
    found = sorted([message["Body"] for message in taken] for taken in takes if taken)
    assert found == [[f"{group}1", f"{group}2"] for group in "abcd"]


def test_receives_that_wait_do_not_divide_a_group(sqs: Sqs, url: str, broker: Broker) -> None:
    """Several wait before there is anything. Of each group one of them gets the first message, and
    what there is of the group by then; the others get nothing of it."""
    with ThreadPoolExecutor(3) as threads:
        waits = [threads.submit(sqs.take, url, 10, WaitTimeSeconds=20) for _ in range(3)]
        until(
            lambda: [one["credit"] for one in broker.consumers("q.fifo")] == [10] * 3, "they wait"
        )
        entries = [
            {"Id": body, "MessageBody": body, "MessageGroupId": body[0]}
            | {"MessageDeduplicationId": body}
            for body in ("a1", "a2", "a3", "b1", "b2", "c1")
        ]
        sqs.do("SendMessageBatch", QueueUrl=url, Entries=entries)
        put(sqs, url, "d1", "d")
        put(sqs, url, "e1", "e")
        runs: dict[str, str] = {}
        for wait in waits:
            found = [message["Body"] for message in wait.result()]
            of_groups = {one[0]: "".join(b[1] for b in found if b[0] == one[0]) for one in found}
            assert not of_groups.keys() & runs.keys()
            runs |= of_groups
        assert runs.keys() >= {"a"}
        assert all("123".startswith(numbers) for numbers in runs.values())


def test_what_comes_back_comes_before_what_was_behind_it(
    sqs: Sqs, url: str, clock: VirtualClock
) -> None:
    for body in ("1", "2", "3"):
        put(sqs, url, body)
    [message] = sqs.take(url, 1)
    handle = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    sqs.do("ChangeMessageVisibility", **handle, VisibilityTimeout=0)
    [message] = sqs.take(url, 1)
    assert message["Body"] == "1"
    handle["ReceiptHandle"] = message["ReceiptHandle"]
    sqs.do("ChangeMessageVisibility", **handle, VisibilityTimeout=60)
    clock.advance(ms=30_000)
    assert sqs.take(url) == [], "a message that is put off holds its group"
    clock.advance(ms=30_000)
    [message] = sqs.take(url, 1)
    assert message["Body"] == "1"
    sqs.delete(url, message)
    assert sqs.bodies(url) == ["2", "3"]


def test_a_delay_is_the_queue_s__and_a_new_one_keeps_the_order(
    sqs: Sqs, url: str, clock: VirtualClock
) -> None:
    message = {"QueueUrl": url, "MessageBody": "b", "MessageGroupId": "g"}
    text = sqs.refused("SendMessage", **message, MessageDeduplicationId="d", DelaySeconds=5)
    assert text.startswith("InvalidParameterValue DelaySeconds")
    sqs.do("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "100"})
    put(sqs, url, "1")
    sqs.do("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "10"})
    put(sqs, url, "2")
    put(sqs, url, "other", "h")
    assert sqs.take(url) == []
    clock.advance(ms=10_000)
    first = sqs.take(url)
    assert sorted(one["Body"] for one in first) == ["1", "2", "other"], "neither is held up"


def test_a_message_is_there_once_within_five_minutes(
    sqs: Sqs, url: str, clock: VirtualClock
) -> None:
    first = put(sqs, url, "1", name="same")
    sqs.delete(url, sqs.take(url)[0])
    clock.advance(ms=(WINDOW_SECONDS - 1) * 1_000)
    assert put(sqs, url, "again", name="same") == first
    assert sqs.take(url) == []
    clock.advance(ms=1_000)
    assert put(sqs, url, "new", name="same") != first
    assert sqs.bodies(url) == ["new"]


def test_content_is_a_deduplication_id__where_the_queue_says_so(sqs: Sqs, url: str) -> None:
    message = {"QueueUrl": url, "MessageBody": "b", "MessageGroupId": "g"}
    assert sqs.refused("SendMessage", **message).startswith("InvalidParameterValue")
    on = {"ContentBasedDeduplication": "true"}
    sqs.do("SetQueueAttributes", QueueUrl=url, Attributes=on)
    first = sqs.do("SendMessage", **message)
    assert sqs.do("SendMessage", **message)["SequenceNumber"] == first["SequenceNumber"]
    assert (
        sqs.do("SendMessage", **message | {"MessageBody": "c"})["MessageId"] != (first["MessageId"])
    )
    del message["MessageGroupId"]
    assert sqs.refused("SendMessage", **message).startswith("MissingParameter MessageGroupId")


def test_a_deduplication_id_counts_within_its_group__where_the_queue_says_so(sqs: Sqs) -> None:
    """Also in one batch; and a consumer sees the id as it was sent."""
    high = {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
    url = sqs.queue("high.fifo", **high)
    assert sqs.shown(url, *high) == high
    first, other = put(sqs, url, "1", "g", "same"), put(sqs, url, "2", "h", "same")
    assert first != other
    named = {"MessageDeduplicationId": "same"}
    entries = [
        {"Id": group + body, "MessageBody": body, "MessageGroupId": group, **named}
        for group, body in ("g5", "h6", "i3", "i4")
    ]
    answer = sqs.do("SendMessageBatch", QueueUrl=url, Entries=entries)
    ids = [one["MessageId"] for one in answer["Successful"]]
    assert ids[:2] == [first, other]
    assert ids[2] == ids[3]
    found = {one["Body"]: one["Attributes"]["MessageDeduplicationId"] for one in sqs.take(url)}
    assert found == dict.fromkeys("123", "same")
    by_queue = {"FifoThroughputLimit": "perQueue", "DeduplicationScope": "queue"}
    sqs.do("SetQueueAttributes", QueueUrl=url, Attributes=by_queue)
    assert put(sqs, url, "7", "g", "new") == put(sqs, url, "8", "h", "new")


def test_of_many_at_once_one_is_there(sqs: Sqs, url: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: put(sqs, url, "b", name="same"), range(32)))
    assert len(set(ids)) == 1
    entries = [
        {"Id": str(n), "MessageBody": str(n), "MessageGroupId": "h", "MessageDeduplicationId": d}
        for n, d in enumerate("aabbc")
    ]
    answer = sqs.do("SendMessageBatch", QueueUrl=url, Entries=entries)
    numbers = [one["SequenceNumber"] for one in answer["Successful"]]
    assert len(set(numbers)) == 3
    assert numbers == sorted(numbers)
    assert sqs.shown(url, "ApproximateNumberOfMessages") == {"ApproximateNumberOfMessages": "4"}


def test_a_restart_forgets_no_deduplication_id(tmp_path: Path) -> None:
    clock, ids = VirtualClock(), []
    settings = BrokerSettings(
        journal=JournalSettings(url=str(tmp_path)), sqs=SqsSettings(enabled=True)
    )
    for seconds in (0, WINDOW_SECONDS - 1, 1):
        clock.advance(ms=seconds * 1_000)
        broker = Broker(settings, clock)
        broker.start()
        server = HttpServer(Service(broker, Gate(), lambda: True), "127.0.0.1", 0)
        server.start()
        sqs = Sqs(server.port)
        url = sqs.queue("q.fifo")
        ids.append(put(sqs, url, "b", name="same"))
        sqs.http.close()
        server.stop()
        broker.stop()
    assert ids[0] == ids[1]
    assert ids[2] != ids[0]


def test_names_say_the_id_and_the_second() -> None:
    name = Name.of("an id")
    number = name.number(1_795_480_759)
    assert 0 <= number < 1 << 63
    assert name.is_repeat(number, 1_795_480_759 + WINDOW_SECONDS - 1)
    assert not name.is_repeat(number, 1_795_480_759 + WINDOW_SECONDS)
    assert name.is_repeat(number, 1_795_480_750), "the clock was put back a little"
    assert not Name.of("another").is_repeat(number, 1_795_480_759)
    assert int(name.producer.removeprefix("sqs-")) < BUCKETS


def test_what_was_forgotten_is_asked_for() -> None:
    recent = RecentMessages(0)
    assert not recent.is_complete(WINDOW_SECONDS - 1)
    assert recent.is_complete(WINDOW_SECONDS)
    for number in range(KNOWN_MAX + 1):
        recent.note((NOBODY, str(number)), WINDOW_SECONDS, {"MessageId": str(number)})
    assert recent.find((NOBODY, "0"), WINDOW_SECONDS) is None
    assert recent.find((NOBODY, "1"), WINDOW_SECONDS) == {"MessageId": "1"}
    assert recent.find((NOBODY, "1"), 2 * WINDOW_SECONDS) is None
    assert not recent.is_complete(2 * WINDOW_SECONDS)
    assert recent.is_complete(2 * WINDOW_SECONDS + 1)


def test_a_message_that_is_delayed_does_not_block_its_group(
    sqs: Sqs, url: str, clock: VirtualClock
) -> None:
    sqs.do("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "10"})
    put(sqs, url, "a")
    clock.advance(ms=10_000)
    put(sqs, url, "b")
    [message] = sqs.take(url)
    assert message["Body"] == "a"
    sqs.delete(url, message)
    assert sqs.take(url) == []
    clock.advance(ms=10_000)
    assert sqs.bodies(url) == ["b"]


def test_a_message_that_is_sent_does_not_end_the_wait_of_its_group(sqs: Sqs, url: str) -> None:
    """Also with a delay of 0, which a FIFO queue takes."""
    put(sqs, url, "1")
    assert sqs.bodies(url) == ["1"]
    names = {"MessageGroupId": "g", "MessageDeduplicationId": "2"}
    sqs.send(url, "2", DelaySeconds=0, **names)
    assert sqs.take(url) == []


def test_a_repeat_has_the_digests_of_what_was_sent_now(sqs: Sqs, url: str) -> None:
    names = {"MessageGroupId": "g", "MessageDeduplicationId": "same"}
    colour = {"colour": {"DataType": "String", "StringValue": "red"}}
    first = sqs.send(url, "one", **names)
    again = sqs.send(url, "another", MessageAttributes=colour, **names)
    assert (again["MessageId"], again["SequenceNumber"]) == (
        first["MessageId"],
        first["SequenceNumber"],
    )
    assert again["MD5OfMessageBody"] == body_digest(b"another")
    assert again["MD5OfMessageAttributes"] == digest_of(attributes_of(colour))


def test_a_batch_has_all_that_a_single_message_has(sqs: Sqs) -> None:
    url = sqs.queue("batch.fifo", ContentBasedDeduplication="true")
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
    more = {"MessageGroupId": "g", "MessageSystemAttributes": trace}
    entries = [{"Id": name, "MessageBody": "same", **more} for name in ("a", "b")]
    answer = sqs.do("SendMessageBatch", QueueUrl=url, Entries=entries)
    assert len({one["MessageId"] for one in answer["Successful"]}) == 1
    [message] = sqs.take(url)
    found = message["Attributes"]
    assert (found["MessageGroupId"], found["AWSTraceHeader"]) == ("g", "Root=1")
    assert found["MessageDeduplicationId"] == hashlib.sha256(b"same").hexdigest()
    sqs.delete(url, message)
    assert sqs.take(url) == []


def test_dead_letters_keep_their_group__and_what_was_behind_them_goes_on(
    sqs: Sqs, clock: VirtualClock
) -> None:
    """Also where the queue of the dead letters makes no deduplication ids of contents."""
    letters = sqs.queue("letters.fifo")
    arn = "arn:aws:sqs:us-east-1:000000000000:letters.fifo"
    policy = f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":1}}'
    on = {"ContentBasedDeduplication": "true", "VisibilityTimeout": "10"}
    url = sqs.queue("work.fifo", RedrivePolicy=policy, **on)
    for body in ("1", "2"):
        sqs.send(url, body, MessageGroupId="g")
    assert sqs.bodies(url, 1) == ["1"]
    clock.advance(ms=11_000)
    [behind] = sqs.take(url)
    assert behind["Body"] == "2"
    sqs.delete(url, behind)
    until(lambda: sqs.shown(letters)["ApproximateNumberOfMessages"] == "1")
    [dead] = sqs.take(letters, VisibilityTimeout=1)
    assert (dead["Body"], dead["Attributes"]["MessageGroupId"]) == ("1", "g")
    clock.advance(ms=2_000)
    sqs.do("StartMessageMoveTask", SourceArn=arn)
    until(lambda: sqs.shown(url)["ApproximateNumberOfMessages"] == "1")
    [back] = sqs.take(url)
    assert (back["Body"], back["Attributes"]["MessageGroupId"]) == ("1", "g")
    assert back["MessageId"] == dead["MessageId"]
