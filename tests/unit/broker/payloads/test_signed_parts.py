"""Covers: signed URLs for parts: which, for how long, and where there are none.

Not covered: that an object store takes them (tests/integration/test_streamed_payloads.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dejaqueue import limits
from dejaqueue.broker.payloads.payloads import Payloads
from dejaqueue.broker.payloads.signed_parts import (
    SIGNED_MS,
    Places,
    sign_parts,
    sign_payload,
    sign_upload,
)
from dejaqueue.broker.payloads.streamed import begin_upload
from dejaqueue.errors import BadRequest, Refused
from dejaqueue.journal.registry import open_store
from dejaqueue.model import Topic
from dejaqueue.payloads.payload_store import PayloadStore
from dejaqueue.setting_groups import PayloadSettings
from dejaqueue.settings import BrokerSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.payload_stores import FaultyBucket
from tests.unit.broker.payloads.test_streamed import TOPIC, uploaded


class Signing(FaultyBucket):
    """A bucket whose URLs say what they are for."""

    signs = True

    def sign(self, method: str, names: Sequence[str], length_ms: int) -> list[str]:
        return [f"{method} {name} {length_ms}" for name in names]

    def signed_headers(self, method: str) -> dict[str, str]:
        return {"X-Method": method}


@pytest.fixture
def payloads(tmp_path: Path) -> Iterator[Payloads]:
    settings = BrokerSettings(payloads=PayloadSettings(url=str(tmp_path / "payloads")))
    made = Payloads(settings, VirtualClock(), ThreadPoolExecutor(2))
    store = open_store(str(tmp_path / "journal"))
    made.open(store)
    store.close()
    made.store = PayloadStore(Signing(tmp_path / "payloads"), made.clock.now_us)
    yield made
    made.close()


def test_each_part_has_a_url_for_a_while(payloads: Payloads) -> None:
    _, parts = sign_upload(payloads, TOPIC, limits.PART_BYTES + 1)
    assert [url.split()[0] for url in parts.urls] == ["PUT", "PUT"]
    assert [url.split()[1][-6:] for url in parts.urls] == ["/00000", "/00001"]
    assert parts.headers == {"X-Method": "PUT"}
    assert parts.until_ms == payloads.clock.utc_ms() + SIGNED_MS
    found, parts = sign_payload(payloads, TOPIC.name, uploaded(payloads))
    assert (found.count, [url.split()[0] for url in parts.urls]) == (1, ["GET"])


def test_parts_are_signed_as_they_are_asked_for(payloads: Payloads) -> None:
    upload = begin_upload(payloads, "t")
    topic = Topic("t", max_payload_bytes=3 * limits.PART_BYTES)
    found = sign_parts(payloads, topic, upload, Places(1, 9))
    assert [url.split()[1][-6:] for url in found.urls] == ["/00001", "/00002"]
    with pytest.raises(BadRequest, match="first: first <= end, from 0 to 3, got: 4"):
        sign_parts(payloads, topic, upload, Places(4, 9))
    with pytest.raises(BadRequest, match="upload: one that was begun for this topic"):
        sign_parts(payloads, TOPIC, upload, Places(0, 1))
    voucher = uploaded(payloads)
    parts, found = sign_payload(payloads, TOPIC.name, voucher, Places(1, 1))
    assert (parts.count, found.urls) == (1, [])
    for wrong in (Places(-1), Places(2), Places(0, 2)):
        with pytest.raises(BadRequest, match="first: first <= end, from 0 to 1"):
            sign_payload(payloads, TOPIC.name, voucher, wrong)


def test_where_the_settings_say_so_nothing_is_signed(payloads: Payloads) -> None:
    voucher = uploaded(payloads)
    through = payloads.settings.payloads.model_copy(update={"direct": False})
    payloads.settings = payloads.settings.model_copy(update={"payloads": through})
    with pytest.raises(Refused, match=r"payloads\.direct"):
        sign_upload(payloads, TOPIC, 5)
    with pytest.raises(Refused, match=r"payloads\.direct"):
        sign_payload(payloads, TOPIC.name, voucher)


def test_what_the_topic_does_not_take_has_none(payloads: Payloads) -> None:
    for wrong in (0, limits.STREAMED_BYTES_MAX + 1):
        with pytest.raises(BadRequest, match="bytes: a whole number"):
            sign_upload(payloads, TOPIC, wrong)
    with pytest.raises(BadRequest, match="payload: at most 5 bytes"):
        sign_upload(payloads, Topic("t", max_payload_bytes=5), 6)


def test_what_is_encrypted_goes_through_the_broker(payloads: Payloads) -> None:
    payloads._is_sealed = True
    with pytest.raises(Refused, match="encrypted"):
        sign_upload(payloads, TOPIC, 5)
    voucher = uploaded(payloads)
    with pytest.raises(Refused, match="encrypted"):
        sign_payload(payloads, TOPIC.name, voucher)


def test_a_directory_signs_none(payloads: Payloads, tmp_path: Path) -> None:
    payloads.store = PayloadStore(FaultyBucket(tmp_path / "payloads"), payloads.clock.now_us)
    with pytest.raises(Refused, match="is a directory"):
        sign_upload(payloads, TOPIC, 5)
