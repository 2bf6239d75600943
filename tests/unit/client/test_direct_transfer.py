"""Covers: parts that go by signed URLs: which URLs are asked for, what is stored and read, what is
no part, what is broken off.

Not covered: connections (test_store_connections.py), what falls back to the broker
(test_streamed.py), object stores (tests/integration/test_direct_payloads.py).
"""

from __future__ import annotations

import base64
import hashlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from dejaqueue.client import direct_transfer
from dejaqueue.client.direct_transfer import AT_ONCE, SIGNED_AT_ONCE, DirectTransfer
from dejaqueue.errors import BadRequest, JournalDamaged, Refused, Unavailable
from dejaqueue.schema.payload_parts import PartList
from tests.patience import PATIENCE_SECONDS
from tests.unit.client.test_store_connections import HERE, Store, running

PART = 10


@pytest.fixture
def store() -> Iterator[Store]:
    with running() as made:
        yield made


def parts_of(*contents: bytes) -> PartList:
    digests = b"".join(hashlib.sha256(one).digest() for one in contents)
    return PartList(sum(map(len, contents)), PART, digests)


class Signer:
    """Signs as a broker does.

    Attributes:
        asked: first and end of each call.
    """

    def __init__(self, port: int, scheme: str = "http") -> None:
        self.asked: list[tuple[int, int]] = []
        self._place = f"{scheme}://{HERE}:{port}/part"
        self.parts = parts_of()

    def __call__(self, first: int, end: int) -> dict[str, Any]:
        self.asked.append((first, end))
        return {
            "urls": [f"{self._place}{index}?signed" for index in range(first, end)],
            "headers": {"X-Wanted": "yes"},
            "bytes": self.parts.byte_count,
            "part_bytes": PART,
            "digests": base64.b64encode(self.parts.digests).decode(),
        }


@pytest.fixture
def signer(store: Store) -> Signer:
    return Signer(store.port)


@pytest.fixture
def transfer(signer: Signer) -> Iterator[DirectTransfer]:
    made = DirectTransfer(signer, SIGNED_AT_ONCE + 5, is_secret=False)
    yield made
    made.close()
    made.close()


def test_parts_are_stored_and_read_on_few_connections(
    store: Store, signer: Signer, transfer: DirectTransfer
) -> None:
    contents = [bytes([number]) * PART for number in range(5)]
    for index, content in enumerate(contents):
        transfer.put(index, content).result(PATIENCE_SECONDS)
    assert store.headers["X-Wanted"] == "yes"
    assert store.objects["/part4?signed"] == contents[4]
    signer.parts = parts_of(*contents)
    parts = transfer.signed_list()
    assert parts == signer.parts
    read = [transfer.get(index, parts).result(PATIENCE_SECONDS) for index in range(5)]
    assert (read, store.connections) == (contents, 1)


def test_urls_are_asked_for_some_ahead_and_no_further_than_there_are_parts(
    signer: Signer, transfer: DirectTransfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in (0, AT_ONCE - 1, AT_ONCE, 2 * AT_ONCE, 3 * AT_ONCE, SIGNED_AT_ONCE):
        transfer.put(index, b"x").result(PATIENCE_SECONDS)
    most = SIGNED_AT_ONCE + 5
    firsts = (0, 8), (8, 16), (16, 32), (64, most)
    assert tuple(signer.asked) == firsts
    monkeypatch.setattr(direct_transfer, "STALE_US", -1)
    transfer.put(SIGNED_AT_ONCE + 1, b"x").result(PATIENCE_SECONDS)
    assert signer.asked[-1] == (SIGNED_AT_ONCE + 1, most)


def test_another_part_or_length_or_status_is_no_answer(
    store: Store, transfer: DirectTransfer
) -> None:
    transfer.put(0, b"a" * PART).result(PATIENCE_SECONDS)
    with pytest.raises(JournalDamaged, match="part 0"):
        transfer.get(0, parts_of(b"b" * PART)).result(PATIENCE_SECONDS)
    with pytest.raises(Unavailable, match="status 200, 10 bytes"):
        transfer.get(0, parts_of(b"short")).result(PATIENCE_SECONDS)
    store.status = 403
    with pytest.raises(Unavailable, match="status 403"):
        transfer.put(0, b"a" * PART).result(PATIENCE_SECONDS)


def test_nobody_there_and_no_signature_are_told(signer: Signer) -> None:
    with socket.socket() as bound:  # nobody listens there
        bound.bind((HERE, 0))
        transfer = DirectTransfer(Signer(bound.getsockname()[1]), 1, is_secret=False)
        with pytest.raises(Unavailable, match="is not reached from here"):
            transfer.put(0, b"x").result(PATIENCE_SECONDS)
        transfer.close()

    def refused(_first: int, _end: int) -> dict[str, Any]:
        raise Refused("a directory")

    transfer = DirectTransfer(refused, 1, is_secret=False)
    with pytest.raises(Refused):
        transfer.put(0, b"x")
    transfer.close()


def test_nothing_goes_in_the_clear_for_who_has_a_secret_connection(store: Store) -> None:
    for scheme, is_secret in (("http", True), ("ftp", False)):
        transfer = DirectTransfer(Signer(store.port, scheme), 1, is_secret=is_secret)
        with pytest.raises(BadRequest, match="url: https"):
            transfer.put(0, b"x")
        transfer.close()
    assert store.connections == 0


def test_closing_breaks_off_what_is_on_its_way(store: Store, transfer: DirectTransfer) -> None:
    store.hold.clear()
    answers = [transfer.put(index, b"x") for index in range(3)]
    for _ in answers:
        assert store.begun.acquire(timeout=PATIENCE_SECONDS)
    transfer.close()
    for answer in answers:
        assert isinstance(answer.exception(PATIENCE_SECONDS), Unavailable)
    with pytest.raises(Unavailable, match="closed"):
        transfer.put(0, b"x")
