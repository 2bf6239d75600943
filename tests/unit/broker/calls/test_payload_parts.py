"""Covers: the calls of streamed payloads: what their fields may be, which parts a ticket reads.

Not covered: what is stored (tests/unit/broker/payloads/test_streamed.py).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue.broker.broker import Broker
from dejaqueue.broker.calls import payload_parts
from dejaqueue.broker.calls.payload_parts import coded, decoded, whole
from dejaqueue.broker.payloads import streamed
from dejaqueue.broker.payloads.payloads import AHEAD
from dejaqueue.errors import BadRequest, TopicUnknown
from dejaqueue.model import Topic
from dejaqueue.payloads import streamed_store
from dejaqueue.schema.vouchers import UPLOAD
from dejaqueue.setting_groups import PayloadSettings
from dejaqueue.settings import BrokerSettings, JournalSettings
from tests.patience import until

CONTENT = b"content"
DIGEST = coded(hashlib.sha256(CONTENT).digest())


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    payloads = PayloadSettings(url=str(tmp_path / "payloads"))
    made = Broker(BrokerSettings(journal=JournalSettings(url="memory:"), payloads=payloads))
    made.start()
    made.create_topic(Topic("t"))
    yield made
    made.stop()


def voucher(broker: Broker) -> str:
    named = {"topic": "t", "upload": broker.call("begin_payload", {"topic": "t"})["upload"]}
    put = named | {"index": 0, "digest": DIGEST, "content": CONTENT}
    assert broker.call("put_payload_part", put) == {}
    ended = broker.call("end_payload", named | {"bytes": len(CONTENT), "digests": DIGEST})
    return str(ended["voucher"])


def test_parts_are_read_by_their_places(broker: Broker) -> None:
    asked: dict[str, Any] = {"topic": "t", "voucher": voucher(broker)}

    def parts(**more: int) -> list[int]:
        _, batches = broker.read("payload", asked | more)
        return [batch.column(0)[0].as_py() for batch in batches]

    assert parts() == [-1, 0]
    assert parts(first=0) == [0]
    assert parts(end=0) == [-1]
    assert parts(first=0, end=0) == []
    for wrong in ({"first": -2}, {"end": 2}, {"first": 1, "end": 0}):
        with pytest.raises(BadRequest, match="end: first <= end, from -1 to 1"):
            parts(**wrong)


def test_parts_are_read_ahead_and_sent_without_a_copy(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {index: bytes([index + 1]) * 9 for index in range(-1, 6)}
    asked: list[int] = []

    def get_part(_store: object, _reference: object, index: int) -> bytes:
        asked.append(index)
        return contents[index]

    monkeypatch.setattr(streamed_store, "get_part", get_part)
    monkeypatch.setattr(streamed, "part_count", lambda _: 6)
    monkeypatch.setattr(payload_parts, "part_count", lambda _: 6)
    _, batches = broker.read("payload", {"topic": "t", "voucher": voucher(broker)})
    until(lambda: len(asked) == 1 + AHEAD)  # before the first one is taken, and no more
    for index, batch in zip(range(-1, 6), batches, strict=True):
        assert batch.column(1)[0].as_py() == contents[index]
        data = batch.column(1).buffers()[2]
        assert data.address == pa.py_buffer(contents[index]).address
    assert sorted(asked) == list(range(-1, 6))


def test_an_upload_says_for_whom_it_is_and_how_parts_may_go(broker: Broker) -> None:
    assert broker.payloads.seal is not None
    for once, owner in ((False, "uploads"), (True, broker.payload_owner("t"))):
        begun = broker.call("begin_payload", {"topic": "t", "once": once})
        assert begun["direct"] is False  # a directory
        upload = base64.b64decode(begun["upload"])
        name = broker.payloads.seal.opened(upload, UPLOAD).name
        assert name.split("/")[1] == owner


def test_what_is_no_field_is_refused(broker: Broker) -> None:
    for name in ("begin_payload", "put_payload_part"):
        with pytest.raises(BadRequest):
            broker.call(name, {"topic": 5, "upload": "", "index": 0, "digest": ""})
    with pytest.raises(BadRequest, match="once: true or false"):
        broker.call("begin_payload", {"topic": "t", "once": 1})
    with pytest.raises(TopicUnknown):
        broker.call("begin_payload", {"topic": "unknown"})
    with pytest.raises(BadRequest, match="content"):
        broker.call("put_payload_part", {"topic": "t", "upload": "", "index": 0, "digest": ""})
    for value in (None, 5, "no base64!", "A" * 300_000):
        with pytest.raises(BadRequest, match="digest: base64"):
            decoded({"digest": value}, "digest")
    for number in (None, True, "1", 1.0):
        with pytest.raises(BadRequest, match="index: a whole number"):
            whole({"index": number}, "index")
