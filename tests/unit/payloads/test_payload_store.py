"""Covers: the payload store on a directory and on S3: what is stored comes back, what is another
payload is told, and a store that is away is not asked again at once.

Not covered: what a broker does with it (tests/rules/test_rule_22_payloads.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dejaqueue.errors import BadRequest, JournalDamaged, Unavailable
from dejaqueue.payloads.payload_store import AWAY_US, PayloadStore, open_payload_store
from tests.object_store import S3Server, s3_server
from tests.payload_stores import store_in

KEY = b"k" * 32


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    yield from s3_server()


@pytest.fixture(params=["directory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> PayloadStore:
    url = str(tmp_path / "payloads")
    if request.param == "s3":
        url = f"{request.getfixturevalue('server').new_bucket()}/with/prefix"
    return open_payload_store(url, lambda: 0)


@pytest.mark.parametrize("key", [b"", KEY])
def test_what_is_stored_comes_back(store: PayloadStore, key: bytes) -> None:
    large = os.urandom(1 << 20)
    found = [store.put(f"id/1-t/{number}", memoryview(large)[:number], key) for number in (0, 7)]
    found.append(store.put("id/1-t/whole", large, key))
    assert [store.get(reference) for reference in found] == [b"", large[:7], large]
    assert [reference.byte_count for reference in found] == [0, 7, 1 << 20]
    names = [one.name for one in store.objects("id/1-t/")]
    assert names == ["id/1-t/0", "id/1-t/7", "id/1-t/whole"]
    store.mark("id/ended/1")
    store.delete([*names, "id/1-t/none"])
    assert [one.name for one in store.objects("id/")] == ["id/ended/1"]
    with pytest.raises(JournalDamaged, match=r"payload id/1-t/7 of 7 bytes is missing"):
        store.get(found[1])


@pytest.mark.parametrize("key", [b"", KEY])
def test_another_payload_is_told(store: PayloadStore, key: bytes) -> None:
    first = store.put("id/1-t/a", b"first", key)
    second = store.put("id/1-t/b", b"other", key)
    for wrong in (
        first._replace(name=second.name),
        first._replace(digest=second.digest),
        second._replace(key=b"another key".ljust(32)),
    ):
        with pytest.raises(JournalDamaged, match="is not what was stored"):
            store.get(wrong)


def test_a_flipped_bit_is_told__and_nothing_readable_is_stored(tmp_path: Path) -> None:
    store, bucket, _ = store_in(tmp_path)
    for key in (b"", KEY):
        reference = store.put("id/1-t/a", b"MARKER-of-this-test" * 10, key)
        [path] = bucket.files
        content = bytearray(path.read_bytes())
        assert (b"MARKER" in content) is not bool(key)
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        with pytest.raises(JournalDamaged, match="is not what was stored"):
            store.get(reference)


def test_a_store_that_is_away_is_asked_again_after_a_second(tmp_path: Path) -> None:
    store, bucket, elapsed = store_in(tmp_path)
    reference = store.put("id/1-t/a", b"1")
    bucket.is_away = True
    with pytest.raises(Unavailable, match="503 Slow Down"):
        store.get(reference)
    calls = bucket.calls
    bucket.is_away = False
    for _ in range(3):
        with pytest.raises(Unavailable, match=r"the payload store is away \(.*503 Slow Down"):
            store.put("id/1-t/b", b"2")
    assert bucket.calls == calls
    elapsed.us += AWAY_US
    assert store.get(reference) == b"1"


def test_a_store_that_nobody_answers_at_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # the port of nobody
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    store = open_payload_store("s3://somewhere", lambda: 0)
    began = time.monotonic()
    with pytest.raises(Unavailable, match="payloads: storing a at s3://somewhere failed"):
        store.put("a", b"1")
    assert time.monotonic() - began < 60  # the library by itself goes on for minutes


@pytest.mark.parametrize("url", ["ftp://host/x", "s3:/bucket"])
def test_a_url_that_is_none_is_refused_by_its_setting(url: str) -> None:
    with pytest.raises(BadRequest, match=r"payloads\.url: a path"):
        open_payload_store(url, lambda: 0)


def test_the_store_tells_where_it_is(tmp_path: Path) -> None:
    make: Callable[[str], PayloadStore] = lambda url: open_payload_store(url, lambda: 0)  # noqa: E731
    assert make(str(tmp_path)).url == tmp_path.as_uri()


def test_one_caller_alone_claims_a_name(store: PayloadStore) -> None:
    assert [store.claim("id/1-t/a/taken") for _ in range(3)] == [True, False, False]


def test_what_is_not_certain_is_no_claim(tmp_path: Path) -> None:
    store, bucket, _ = store_in(tmp_path)
    bucket.is_away = True
    assert not store.claim("a")
    bucket.is_away = False
    assert store.claim("a")  # it was not asked, and did not count as away
    bucket.put_new = lambda name, content: True  # type: ignore[method-assign]  # no conditions here
    assert not store.claim("b")
