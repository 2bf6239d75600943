"""Covers: uploads part by part, what ends one, vouchers for another topic, and parts read again.

Not covered: the store itself (tests/unit/payloads/test_streamed_store.py), real clients
(tests/integration/test_streamed_payloads.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dejaqueue import limits
from dejaqueue.broker.payloads import streamed
from dejaqueue.broker.payloads.payloads import UPLOAD_MS, Payloads
from dejaqueue.broker.payloads.streamed import UploadedPart
from dejaqueue.errors import BadRequest, Refused
from dejaqueue.journal.registry import open_store
from dejaqueue.model import Topic
from dejaqueue.schema.payload_parts import LIST_INDEX
from dejaqueue.schema.vouchers import parse_voucher
from dejaqueue.setting_groups import PayloadSettings
from dejaqueue.settings import BrokerSettings
from dejaqueue.testing.virtual_clock import VirtualClock

TOPIC = Topic("videos", max_payload_bytes=limits.STREAMED_BYTES_MAX)
CONTENT = b"content"
DIGEST = hashlib.sha256(CONTENT).digest()


def opened(root: Path, url: str) -> Payloads:
    settings = BrokerSettings(payloads=PayloadSettings(url=url))
    payloads = Payloads(settings, VirtualClock(), ThreadPoolExecutor(2))
    store = open_store(str(root / "journal"))
    payloads.open(store)
    store.close()
    return payloads


@pytest.fixture
def payloads(tmp_path: Path) -> Iterator[Payloads]:
    made = opened(tmp_path, str(tmp_path / "payloads"))
    yield made
    made.close()


def uploaded(payloads: Payloads, owner: str = "") -> bytes:
    upload = streamed.begin_upload(payloads, TOPIC.name, owner)
    streamed.put_part(payloads, TOPIC, upload, UploadedPart(0, CONTENT, DIGEST))
    return streamed.end_upload(payloads, TOPIC, upload, len(CONTENT), DIGEST)


def test_what_was_uploaded_is_adopted_and_read(payloads: Payloads) -> None:
    voucher = uploaded(payloads)
    reference = streamed.adopt(payloads, voucher, TOPIC, "1-videos")
    assert reference.name.startswith(f"{payloads.id}/1-videos/")
    assert payloads.seal is not None
    delivered = payloads.seal.voucher(reference, TOPIC.name)
    assert list(streamed.read_parts(payloads, TOPIC.name, delivered, [0])) == [CONTENT]
    names = {reference.name}
    names.add(streamed.adopt(payloads, voucher, TOPIC, "1-videos").name)
    names.add(streamed.adopt(payloads, delivered, TOPIC, "1-videos").name)
    assert len(names) == 3  # each message has its own


def test_the_first_message_keeps_an_upload_for_one__others_have_copies(
    payloads: Payloads,
) -> None:
    owner = "1-videos"
    voucher = uploaded(payloads, owner)
    first = streamed.adopt(payloads, voucher, TOPIC, owner)
    assert payloads.seal is not None
    assert first == payloads.seal.opened(voucher)
    delivered = payloads.seal.voucher(first, TOPIC.name)
    names = {first.name}
    for again, of in ((voucher, owner), (delivered, owner), (voucher, "2-others")):
        copy = streamed.adopt(payloads, again, TOPIC, of)
        assert copy.name.startswith(f"{payloads.id}/{of}/")
        names.add(copy.name)
    assert len(names) == 4
    late = uploaded(payloads, owner)
    assert isinstance(payloads.clock, VirtualClock)
    payloads.clock.advance(ms=UPLOAD_MS)
    assert streamed.adopt(payloads, late, TOPIC, owner).name not in late.decode("latin-1")


def test_an_upload_that_is_gone_is_kept_by_nobody(payloads: Payloads) -> None:
    voucher = uploaded(payloads, "1-videos")
    store = payloads.needed()
    store.delete([one.name for one in store.objects(f"{payloads.id}/1-videos/")])
    with pytest.raises(BadRequest, match="still there"):
        streamed.adopt(payloads, voucher, TOPIC, "1-videos")


def test_a_part_that_was_altered_on_its_way_is_refused(payloads: Payloads) -> None:
    upload = streamed.begin_upload(payloads, TOPIC.name)
    with pytest.raises(BadRequest, match="digest: SHA-256 of the content that came"):
        streamed.put_part(payloads, TOPIC, upload, UploadedPart(0, b"other", DIGEST))


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (UploadedPart(0, b"", DIGEST), "content: from 1 to"),
        (UploadedPart(0, bytes(limits.PART_BYTES + 1), DIGEST), "content: from 1 to"),
        (UploadedPart(-1, CONTENT, DIGEST), "index: 0 or more"),
        (UploadedPart(5_120, CONTENT, DIGEST), "payload: at most 5368709120 bytes"),
    ],
)
def test_what_is_no_part_is_refused(payloads: Payloads, part: UploadedPart, text: str) -> None:
    upload = streamed.begin_upload(payloads, TOPIC.name)
    with pytest.raises(BadRequest, match=text):
        streamed.put_part(payloads, TOPIC, upload, part)


def test_an_upload_is_for_its_topic_and_a_voucher_too(payloads: Payloads) -> None:
    upload = streamed.begin_upload(payloads, "other")
    with pytest.raises(BadRequest, match="upload: one that was begun for this topic"):
        streamed.put_part(payloads, TOPIC, upload, UploadedPart(0, CONTENT, DIGEST))
    voucher = uploaded(payloads)
    with pytest.raises(BadRequest, match="voucher: one of topic other"):
        list(streamed.read_parts(payloads, "other", voucher, [0]))
    with pytest.raises(BadRequest, match="part: from -1 to 0, got: 1"):
        list(streamed.read_parts(payloads, TOPIC.name, voucher, [0, 1]))


def test_a_topic_takes_no_more_than_it_says(payloads: Payloads) -> None:
    voucher = uploaded(payloads)
    with pytest.raises(BadRequest, match="payload: at most 6 bytes, got: 7"):
        streamed.adopt(payloads, voucher, Topic("small", max_payload_bytes=6), "1-small")


def test_the_voucher_says_what_was_uploaded(payloads: Payloads) -> None:
    voucher = uploaded(payloads)
    [stored] = streamed.read_parts(payloads, TOPIC.name, voucher, [LIST_INDEX])
    assert parse_voucher(voucher).digest == hashlib.sha256(stored).digest()


def test_without_a_store_there_are_none(tmp_path: Path) -> None:
    without = opened(tmp_path, "")
    with pytest.raises(Refused, match="no payload store"):
        streamed.begin_upload(without, "t")
    without.close()
