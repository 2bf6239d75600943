"""Rule 22 for payloads that are streamed: what is deleted when, and what is not.

Covered: done, dead and kept messages, crashes, uploads that no message has. Not covered: real
clients and what travels (tests/integration/test_streamed_payloads.py).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue import limits
from dejaqueue.schema.payload_parts import LIST_INDEX
from dejaqueue.schema.vouchers import parse_voucher
from tests.rules.broker_fixture import TOPIC
from tests.rules.test_rule_22_payloads import FAR_MS, Kept

CONTENT = b"c" * limits.PART_BYTES + b"the end"
OBJECTS = 3
"""Two parts and their list."""


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path / "payloads", tmp_path / "journal", max_payload_bytes=64 << 20)
    yield made
    made.fixture.stop()


def uploaded(kept: Kept, content: bytes = CONTENT, *, once: bool = False) -> bytes:
    """A voucher for a payload that was streamed."""
    call = kept.fixture.broker.call
    begun = call("begin_payload", {"topic": TOPIC, "once": once})
    named = {"topic": TOPIC, "upload": begun["upload"]}
    digests = []
    for index, first in enumerate(range(0, len(content), limits.PART_BYTES)):
        part = content[first : first + limits.PART_BYTES]
        digests.append(hashlib.sha256(part).digest())
        coded = base64.b64encode(digests[-1]).decode()
        call("put_payload_part", named | {"index": index, "digest": coded, "content": part})
    coded = base64.b64encode(b"".join(digests)).decode()
    ended = call("end_payload", named | {"bytes": len(content), "digests": coded})
    return base64.b64decode(ended["voucher"])


def read(kept: Kept, voucher: bytes) -> bytes:
    topic = parse_voucher(voucher).topic
    ticket = {"topic": topic, "voucher": base64.b64encode(voucher).decode()}
    _, batches = kept.fixture.broker.read("payload", ticket)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["part"] for row in rows] == list(range(LIST_INDEX, len(rows) - 1))
    return b"".join(row["content"] for row in rows[1:])


def test_parts_go_when_their_message_is_done_and_not_before(kept: Kept) -> None:
    kept.fixture.send([uploaded(kept), b"small"])
    kept.clean()
    assert kept.stored == OBJECTS  # the upload itself is gone
    [voucher, small] = kept.take()
    assert small == b"small"
    assert read(kept, voucher) == CONTENT  # for a minute more
    kept.clean()
    assert kept.stored == 0


def test_an_upload_for_one_message_goes_with_it_and_not_before(kept: Kept) -> None:
    kept.fixture.send([uploaded(kept, once=True)])
    uploaded(kept, once=True)  # nobody sends it
    assert kept.stored == 2 * OBJECTS + 1  # and what says that a message has it
    kept.clean()
    assert kept.stored == OBJECTS + 1
    kept.crash()
    kept.clean()
    [voucher] = kept.take()
    assert read(kept, voucher) == CONTENT
    kept.clean()
    assert kept.stored == 0


def test_an_upload_for_one_that_is_sent_twice_is_there_twice(kept: Kept) -> None:
    voucher = uploaded(kept, once=True)
    for _ in range(2):
        kept.fixture.send([voucher])
    for left in (OBJECTS, 0):
        consumer = kept.fixture.consumer(credit=1)
        [got] = [one for one in consumer.take_all() if one.payloads]
        assert read(kept, got.payloads[0]) == CONTENT
        consumer.ack(got)
        consumer.session.close(release=True)
        kept.clean()
        assert left <= kept.stored <= left + bool(left)


def test_messages_of_one_voucher_have_a_payload_each(kept: Kept) -> None:
    """Sent twice as it was uploaded, and once as it was delivered."""
    voucher = uploaded(kept)
    kept.fixture.send([voucher])
    kept.fixture.send([voucher])
    for number in range(3):
        consumer = kept.fixture.consumer(credit=1)
        [got] = [one for one in consumer.take_all() if one.payloads]
        assert read(kept, got.payloads[0]) == CONTENT
        if not number:
            kept.fixture.send([got.payloads[0]])
        consumer.ack(got)
        consumer.session.close(release=True)
        kept.clean()
    assert kept.stored == 0


def test_dead_letters_have_parts_of_their_own__and_may_come_back(tmp_path: Path) -> None:
    kept = Kept(
        tmp_path / "p", tmp_path / "j", max_payload_bytes=64 << 20, max_attempts=1, lease_ms=1_000
    )
    fixture, dead = kept.fixture, f"{TOPIC}.dead"
    try:
        fixture.send([uploaded(kept)])
        consumer = fixture.consumer()
        assert consumer.take_all()
        consumer.session.close(release=False)
        fixture.advance(1_000)
        other = fixture.consumer()  # somebody has to look, so that they die
        other.take_all()
        fixture.letters_arrive()
        other.session.close(release=True)
        kept.clean()
        assert kept.stored == OBJECTS
        [row] = fixture.peek(dead)
        assert read(kept, row["payload"]) == CONTENT
        fixture.broker.call("redrive", {"topic": dead})
        fixture.letters_arrive()
        [voucher] = kept.take()
        assert read(kept, voucher) == CONTENT
        kept.clean()
        assert kept.stored == 0
    finally:
        fixture.stop()


def test_after_a_crash_what_is_live_stays_and_the_rest_goes(kept: Kept) -> None:
    kept.fixture.send([uploaded(kept)])
    uploaded(kept)  # nobody sends it
    kept.crash()
    kept.collector.collect()
    kept.collector.delete_doomed(0)
    assert kept.stored > 2 * OBJECTS  # all of it is young
    kept.clean()
    assert kept.stored == OBJECTS
    [voucher] = kept.take()
    assert read(kept, voucher) == CONTENT


def test_parts_are_kept_for_backups(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "p", tmp_path / "j", max_payload_bytes=64 << 20, keep_ms=5_000)
    try:
        kept.fixture.send([uploaded(kept)])
        [voucher] = kept.take()
        kept.clean()
        assert kept.stored == OBJECTS
        assert read(kept, voucher) == CONTENT
        kept.restart()
        kept.fixture.advance(5_000)
        kept.collector.collect(orphan_ms=-FAR_MS)
        assert kept.bucket.files == []
    finally:
        kept.fixture.stop()
