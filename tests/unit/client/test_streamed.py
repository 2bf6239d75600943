"""Covers: a client's uploads and downloads: parts on their way, what is tried again, what is none.

Not covered: real brokers (tests/integration/test_streamed_payloads.py).
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from dejaqueue import limits
from dejaqueue.client.streamed import (
    AHEAD,
    DIRECT_FROM,
    WINDOW,
    Download,
    PartCalls,
    Upload,
    is_source,
    upload_all,
)
from dejaqueue.clock import SteadyClock
from dejaqueue.errors import BadRequest, JournalDamaged, Refused, Unavailable
from dejaqueue.payloads.voucher_seal import VoucherSeal
from dejaqueue.schema.payload_parts import LIST_INDEX, PartList
from dejaqueue.schema.references import Reference

PART = limits.PART_BYTES
SEAL = VoucherSeal(b"s" * 32)


class Store:
    """Answers as a broker does.

    Attributes:
        fails: how many of the next calls find nobody.
    """

    def __init__(self) -> None:
        self.parts: dict[int, bytes] = {}
        self.fails = 0
        self.called: list[str] = []

    def _answered(self, value: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.fails:
            self.fails -= 1
            future.set_exception(Unavailable("nobody", 1))
        else:
            future.set_result(value)
        return future

    @property
    def list(self) -> PartList:
        digests = b"".join(hashlib.sha256(self.parts[at]).digest() for at in sorted(self.parts))
        return PartList(sum(map(len, self.parts.values())), PART, digests)

    def voucher(self) -> bytes:
        found = self.list
        return SEAL.voucher(Reference("id/1-t/a/", found.byte_count, found.digest), "t")

    def action(self, name: str, body: dict[str, Any], *, repeats: bool = False) -> Future[Any]:
        self.called.append(name)
        if name == "begin_payload":
            return self._answered({"upload": "u"})
        if name == "put_payload_part":
            answer = self._answered({})
            if answer.exception() is None:
                self.parts[body["index"]] = bytes(body["content"])
            return answer
        return self._answered({"voucher": base64.b64encode(self.voucher()).decode()})

    def rows(self, ticket: dict[str, Any]) -> Future[Any]:
        indices = range(ticket["first"], ticket["end"])
        contents = [
            self.list.encode() if index == LIST_INDEX else self.parts[index]
            for index in indices
            if index in self.parts or index == LIST_INDEX
        ]
        return self._answered(pa.table({"content": pa.array(contents, pa.binary())}))


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def part_calls(store: Store) -> PartCalls:
    return PartCalls(store, SteadyClock(), 5_000)  # type: ignore[arg-type]  # of it only these two


def in_pieces(content: bytes, size: int) -> Iterator[bytes]:
    for first in range(0, len(content), size):
        yield content[first : first + size]


@pytest.mark.parametrize("size", [PART // 2 + 1, 3 * PART])
def test_pieces_of_any_size_become_parts(store: Store, part_calls: PartCalls, size: int) -> None:
    content = bytes(range(256)) * (2 * PART // 256) + b"end"
    told: list[int] = []
    voucher = upload_all(part_calls, "t", in_pieces(content, size), told.append)
    assert [len(store.parts[at]) for at in sorted(store.parts)] == [PART, PART, 3]
    assert told == [PART, PART, 3]
    download = Download(part_calls, voucher)
    read = b"".join(iter(download.next_part, b""))
    assert (read == content, download.byte_count) == (True, len(content))


def test_what_is_small_is_sent_as_it_is(store: Store, part_calls: PartCalls) -> None:
    small = b"s" * limits.UNSTREAMED_BYTES_MAX
    assert upload_all(part_calls, "t", io.BytesIO(small)) == small
    assert upload_all(part_calls, "t", iter([])) == b""
    assert store.called == []
    upload_all(part_calls, "t", io.BytesIO(small + b"s"))
    assert store.called == ["begin_payload", "put_payload_part", "end_payload"]


def test_calls_that_find_nobody_are_made_again(store: Store, part_calls: PartCalls) -> None:
    store.fails = 2
    upload = Upload(part_calls, "t")
    upload.write(b"a" * PART)
    store.fails = 3
    upload.write(b"b" * PART)
    voucher = upload.finish()
    store.fails = 2
    download = Download(part_calls, voucher)
    assert download.next_part() == b"a" * PART
    assert download.next_part() == b"b" * PART
    assert download.next_part() == b""


def test_only_a_few_parts_are_held(store: Store, part_calls: PartCalls) -> None:
    upload = Upload(part_calls, "t")
    for number in range(2 * WINDOW):
        upload.write(bytes([number]) * PART)
        assert len(upload._sent) <= WINDOW
    download = Download(part_calls, upload.finish())
    while download.next_part():
        assert len(download._begun) <= AHEAD


def test_a_whole_part_is_sent_and_given_without_a_copy(store: Store, part_calls: PartCalls) -> None:
    sent: list[Any] = []
    answer = store.action

    def action(name: str, body: dict[str, Any], *, repeats: bool = False) -> Future[Any]:
        sent.append(body.get("content"))
        return answer(name, body, repeats=repeats)

    store.action = action  # type: ignore[method-assign]
    whole = b"a" * PART
    changing = bytearray(b"b" * PART)
    upload = Upload(part_calls, "t")
    upload.write(whole)
    upload.write(changing)
    changing[:] = b"c" * PART  # its owner may use it again
    upload.finish()
    assert sent[1] is whole
    assert store.parts[1] == b"b" * PART


def test_another_part_or_list_is_found(store: Store, part_calls: PartCalls) -> None:
    voucher = upload_all(part_calls, "t", iter([b"a" * PART, b"b" * PART]))
    stored = store.list
    download = Download(part_calls, voucher)
    store.parts = {0: b"b" * PART, 1: b"a" * PART}
    with pytest.raises(JournalDamaged, match="list of a payload's parts"):
        download.next_part()
    download = Download(part_calls, voucher)
    download._parts = stored
    with pytest.raises(JournalDamaged, match="part 0"):
        download.next_part()


def test_sources_are_files_and_iterators() -> None:
    assert all(map(is_source, (io.BytesIO(), iter([b""]), in_pieces(b"", 1))))
    values: tuple[object, ...] = (b"x", "x", None, bytearray(b"x"), memoryview(b"x"), [b"x"])
    assert not any(map(is_source, values))


def test_pieces_are_bytes(part_calls: PartCalls) -> None:
    with pytest.raises(BadRequest, match="payload: pieces of bytes, got: 'str'"):
        upload_all(part_calls, "t", iter(["text"]))  # type: ignore[arg-type]


class Past:
    """Parts that go directly, in place of an object store; what is not known there fails."""

    def __init__(self, parts: dict[int, bytes]) -> None:
        self.parts, self.fails_from, self.closed = parts, 1 << 30, 0

    def _future(self, index: int, value: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if index >= self.fails_from:
            future.set_exception(Unavailable("not reached"))
        else:
            future.set_result(value)
        return future

    def put(self, index: int, content: bytes) -> Future[None]:
        if index < self.fails_from:
            self.parts[index] = bytes(content)
        return self._future(index, None)

    def get(self, index: int, _parts: PartList) -> Future[bytes]:
        return self._future(index, self.parts[index])

    def signed_list(self) -> PartList:
        raise Refused("signs nothing")

    def close(self) -> None:
        self.closed += 1


def test_parts_that_fail_to_go_directly_go_through_the_broker(
    store: Store, part_calls: PartCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = Past(store.parts)
    monkeypatch.setattr(part_calls, "direct", lambda *_: past)
    answer = store.action

    def action(name: str, body: dict[str, Any], *, repeats: bool = False) -> Future[Any]:
        if name == "begin_payload":
            return store._answered({"upload": "u", "direct": True})
        return answer(name, body, repeats=repeats)

    store.action = action  # type: ignore[method-assign]
    contents = [bytes([number]) * PART for number in range(DIRECT_FROM + 12)]
    past.fails_from = DIRECT_FROM + 3
    voucher = upload_all(part_calls, "t", iter(contents))
    assert [store.parts[index] for index in range(len(contents))] == contents
    assert store.called.count("put_payload_part") == len(contents) - 3
    assert past.closed == 1
    assert not part_calls.is_direct
    part_calls._direct_from_us = 0
    past.fails_from = 1 << 30
    download = Download(part_calls, voucher)  # that signs nothing: all of it comes by the broker
    assert b"".join(iter(download.next_part, b"")) == b"".join(contents)
    assert (past.closed, part_calls.is_direct) == (2, False)
    past.signed_list = lambda: store.list  # type: ignore[method-assign]
    part_calls._direct_from_us = 0
    past.fails_from = 5
    download = Download(part_calls, voucher)
    assert b"".join(iter(download.next_part, b"")) == b"".join(contents)
    assert (past.closed, part_calls.is_direct) == (3, False)


def test_another_list_with_urls_is_no_list(
    store: Store, part_calls: PartCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    voucher = upload_all(part_calls, "t", (bytes(PART) for _ in range(DIRECT_FROM + 1)))
    past = Past(store.parts)
    past.signed_list = lambda: PartList(PART, PART, bytes(32))  # type: ignore[method-assign]
    monkeypatch.setattr(part_calls, "direct", lambda *_: past)
    with pytest.raises(JournalDamaged, match="list of a payload's parts"):
        Download(part_calls, voucher).next_part()
