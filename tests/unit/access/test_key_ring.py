"""Keys made, found, revoked, kept; nobody locks everybody out by mistake."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dejaqueue import limits
from dejaqueue.access import key_ring
from dejaqueue.access.key_ring import InMemory, KeyRing
from dejaqueue.access.key_uses import KEEP_MS
from dejaqueue.errors import BadRequest, JournalDamaged, Refused, Unauthenticated, Unavailable
from dejaqueue.journal.segments.files import FileSystem
from dejaqueue.journal.segments.store import SegmentStore
from dejaqueue.testing.faulty_journal import FaultyFileSystem
from dejaqueue.testing.virtual_clock import VirtualClock

ADMIN = ["admin:*"]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(start_ms=1_000)


@pytest.fixture
def ring(clock: VirtualClock) -> KeyRing:
    return KeyRing(clock, InMemory())


def test_a_key_is_found_by_its_text_alone(ring: KeyRing) -> None:
    assert not ring.required
    root, text = ring.create("root", ADMIN)
    assert ring.required
    assert ring.find(text) == root
    key, other = ring.create("shop", ["produce:a"])
    assert [found.name for found in ring.all()] == ["root", "shop"]
    mixed = f"dq_{key.id}_{text.rpartition('_')[2]}"
    for wrong in (
        mixed,
        text[:-1],
        text + "0",
        text.upper(),
        "",
        key.id,
        f"dq_{key.id}_",
        "x" * 9_999,
    ):
        with pytest.raises(Unauthenticated) as caught:
            ring.find(wrong)
        assert str(caught.value) == key_ring.REFUSAL
    assert ring.find(other) == key


def test_a_wrong_id_costs_the_same_steps_as_a_wrong_secret(
    ring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, text = ring.create("root", ADMIN)
    steps: list[tuple[str, int, int]] = []
    real = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        steps.append(("compare", len(a), len(b)))
        return real(a, b)

    monkeypatch.setattr("dejaqueue.access.key_ring.hmac.compare_digest", compare)
    for wrong in (f"dq_{'0' * 12}_{'0' * 64}", text[:-2] + "zz", "nothing of a key"):
        with pytest.raises(Unauthenticated):
            ring.find(wrong)
    ring.find(text)
    assert steps == [("compare", 32, 32)] * 4


def test_an_ended_key_is_refused_like_an_unknown_one(ring: KeyRing, clock: VirtualClock) -> None:
    ring.create("root", ADMIN)
    key, text = ring.create("shop", ["produce:a"], 2_000)
    clock.advance(ms=999)
    assert ring.find(text) == key
    assert ring.is_live(key.id)
    clock.advance(ms=1)
    with pytest.raises(Unauthenticated, match=key_ring.REFUSAL):
        ring.find(text)
    assert not ring.is_live(key.id)


def used(ring: KeyRing) -> list[int | None]:
    """When each key was used last, the oldest key first."""
    _, used_ms = ring.uses()
    return [used_ms.get(key.id) for key in ring.all()]


def test_a_use_of_a_key_is_remembered_to_the_minute__a_refusal_is_none(
    ring: KeyRing, clock: VirtualClock
) -> None:
    _, text = ring.create("root", ADMIN)
    shop, _ = ring.create("shop", ["produce:a"])
    cert, _ = ring.create("cert:till", ["produce:a"])
    assert used(ring) == [None, None, None]
    clock.advance(ms=150_000)
    ring.find(text)
    with pytest.raises(Unauthenticated):
        ring.find(f"dq_{shop.id}_{text.rpartition('_')[2]}")
    assert ring.is_live(shop.id)  # a stream that is open
    assert used(ring) == [120_000, 120_000, None]
    clock.advance(ms=60_000)
    ring.named("cert:till")
    assert used(ring) == [120_000, 120_000, 180_000]
    assert ring.uses()[0] == 1_000
    ring.revoke(cert.id)
    assert used(ring) == [120_000, 120_000]


def test_uses_are_stored_apart__at_most_once_in_five_minutes(clock: VirtualClock) -> None:
    asked: list[Callable[[], None]] = []
    documents = InMemory()
    ring = KeyRing(clock, documents, apart=asked.append)
    _, text = ring.create("root", ADMIN)
    for _ in range(3):
        ring.find(text)
    assert len(asked) == 1
    assert documents.load_document("key-uses") is None, "no call writes"
    asked.pop()()
    clock.advance(ms=KEEP_MS - 1)
    ring.find(text)
    assert asked == []
    clock.advance(ms=1)
    ring.find(text)
    assert len(asked) == 1
    assert KeyRing(clock, documents).uses()[1] == {ring.all()[0].id: 0}
    asked.pop()()
    assert KeyRing(clock, documents).uses()[1] == {ring.all()[0].id: KEEP_MS}
    ring.close()
    ring.keep_uses()  # there is nothing to store them in


def test_a_key_that_has_ended_is_not_used_by_who_tries(ring: KeyRing, clock: VirtualClock) -> None:
    ring.create("root", ADMIN)
    key, text = ring.create("shop", ["produce:a"], 2_000)
    clock.advance(ms=100_000)
    with pytest.raises(Unauthenticated):
        ring.find(text)
    assert key.id not in ring.uses()[1]


def test_a_revoked_key_is_never_found_again(ring: KeyRing) -> None:
    ring.create("root", ADMIN)
    told: list[int] = []
    ring.on_change.append(lambda: told.append(len(ring.all())))
    key, text = ring.create("shop", ["produce:a"])
    assert ring.revoke("shop") == key
    with pytest.raises(Unauthenticated):
        ring.find(text)
    assert not ring.is_live(key.id)
    assert told == [2, 1]
    again, _ = ring.create("shop", ["produce:a"])
    assert again.id != key.id
    assert ring.revoke(again.id) == again


def test_a_whole_key_is_revoked_by_its_id_and_never_shown(ring: KeyRing) -> None:
    ring.create("root", ADMIN)
    _, text = ring.create("shop", ["produce:a"])
    assert ring.revoke(text).name == "shop"
    with pytest.raises(BadRequest) as caught:
        ring.revoke(text)
    assert text.rpartition("_")[2] not in f"{caught.value}{caught.value.fields()}"


@pytest.mark.parametrize(
    ("grants", "ends_ms"), [(["produce:*"], None), (["admin:a*"], None), (ADMIN, 9_000)]
)
def test_the_first_key_must_be_able_to_make_others(
    ring: KeyRing, grants: list[str], ends_ms: int | None
) -> None:
    with pytest.raises(Refused, match="first"):
        ring.create("shop", grants, ends_ms)
    assert not ring.required


def test_the_last_admin_key_takes_force_and_opens_nothing(ring: KeyRing) -> None:
    key, _ = ring.create("root", ADMIN)
    ring.create("passing", ADMIN, 9_000)
    ring.create("shop", ["produce:a", "admin:shop.*"])
    with pytest.raises(Refused, match="last admin key"):
        ring.revoke("root")
    other, _ = ring.create("second", ADMIN)
    ring.revoke("root")
    with pytest.raises(Refused, match="last admin key"):
        ring.revoke("second")
    ring.revoke("second", force=True)
    for name in ("passing", "shop"):
        ring.revoke(name)
    assert ring.all() == []
    assert ring.required, "a broker without keys left must not open to everybody"
    assert not ring.is_live("")
    assert key.id != other.id


def test_what_is_wrong_is_refused_by_its_name(ring: KeyRing, clock: VirtualClock) -> None:
    ring.create("root", ADMIN)
    for ends_ms in (1_000, -1, True, 1.5, "x", limits.INSTANT_MS_MAX + 1):
        with pytest.raises(BadRequest, match="ends_ms"):
            ring.create("shop", ["produce:a"], ends_ms)
    with pytest.raises(Refused, match="root"):
        ring.create("root", ADMIN)
    for name in ("nobody", "", None, 5):
        with pytest.raises(BadRequest, match="key"):
            ring.revoke(name)


def test_there_are_not_more_keys_than_the_limit(
    ring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "API_KEYS_MAX", 2)
    ring.create("root", ADMIN)
    ring.create("a", ["produce:a"])
    with pytest.raises(Refused, match="limit"):
        ring.create("b", ["produce:a"])


def test_keys_are_kept_in_a_file_for_the_broker_alone(tmp_path: Path, clock: VirtualClock) -> None:
    store = SegmentStore(tmp_path)
    ring = KeyRing(clock, store)
    key, text = ring.create("root", ADMIN)
    store.close()
    path = tmp_path / "keys.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert text.rpartition("_")[2] not in path.read_text()
    store = SegmentStore(tmp_path)
    assert KeyRing(clock, store).find(text) == key
    store.close()


def test_a_change_that_is_not_durable_does_not_count(tmp_path: Path, clock: VirtualClock) -> None:
    files = FaultyFileSystem(FileSystem())
    store = SegmentStore(tmp_path, file_system=files)
    ring = KeyRing(clock, store)
    root, text = ring.create("root", ADMIN)
    for operation in ("open", "write", "sync", "rename"):
        files.fail_always(operation, 5)
        with pytest.raises(Unavailable):
            ring.create("shop", ["produce:a"])
        with pytest.raises(Unavailable):
            ring.revoke("root", force=True)
        files.fail_always(operation, None)
        assert ring.all() == [root]
        assert KeyRing(clock, store).all() == [root]
        assert ring.find(text) == root
    ring.create("shop", ["produce:a"])
    store.close()


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 1, "keys": [{}]}'])
def test_damaged_keys_let_nobody_in(text: str, clock: VirtualClock) -> None:
    documents = InMemory()
    documents.store_document("keys", text)
    with pytest.raises(JournalDamaged):
        KeyRing(clock, documents)


def test_keys_of_another_version_are_refused(clock: VirtualClock) -> None:
    documents = InMemory()
    documents.store_document("keys", json.dumps({"version": 3, "keys": []}))
    with pytest.raises(Refused, match="version 3"):
        KeyRing(clock, documents)


def test_keys_of_the_version_before_are_read(clock: VirtualClock) -> None:
    ring = KeyRing(clock, documents := InMemory())
    key, text = ring.create("root", ADMIN)
    values = json.loads(documents.load_document("keys") or "")
    del values["revoked"]
    documents.store_document("keys", json.dumps(values | {"version": 1}))
    assert KeyRing(clock, documents).find(text) == key


def test_a_revoked_key_is_remembered_until_a_day_after_its_end(clock: VirtualClock) -> None:
    ring = KeyRing(clock, documents := InMemory())
    ring.create("root", ADMIN)
    for name, ends_ms in (("passing", 60_000), ("lasting", None)):
        ring.create(name, ["produce:a"], ends_ms)
    before = documents.load_document("keys")
    assert before is not None
    passing, lasting = (ring.revoke(name).id for name in ("passing", "lasting"))
    clock.advance(ms=60_000 + 24 * 3_600_000 - clock.now_ms() - 1)
    ring.create("other", ["produce:a"])
    revoked = json.loads(documents.load_document("keys") or "")["revoked"]
    assert revoked == {passing: 60_000, lasting: None}
    clock.advance(ms=1)
    ring.create("another", ["produce:a"])
    assert json.loads(documents.load_document("keys") or "")["revoked"] == {lasting: None}
    documents.store_document("keys", before)
    ring.refresh()
    assert not ring.is_live(lasting)
    assert not ring.is_live(passing), "it has ended by itself"


def test_revoked_keys_are_remembered_up_to_a_limit(
    ring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "API_KEYS_REVOKED_MAX", 2)
    ring.create("root", ADMIN)
    for name in ("a", "b"):
        ring.create(name, ["produce:a"])
        ring.revoke(name)
    with pytest.raises(Refused, match="2 revoked API keys are remembered, the limit"):
        ring.create("c", ["produce:a"])
    ring.revoke("root", force=True)


def test_nobody_is_let_in_before_the_keys_are_read(clock: VirtualClock) -> None:
    ring = KeyRing(clock)
    with pytest.raises(Unavailable):
        _ = ring.required
    ring.open(InMemory())
    assert not ring.required
    ring.close()
    with pytest.raises(Unavailable):
        _ = ring.required


def test_a_key_is_found_by_a_signature__unless_it_has_ended(clock: VirtualClock) -> None:
    ring = KeyRing(clock, InMemory())
    plain, _ = ring.create("root", ["admin:*"])
    ring.keeps_signing = True
    key, _ = ring.create("shop", ["produce:*"], clock.utc_ms() + 1_000)
    assert ring.find_signed(key.id, lambda signing: signing == key.signing) == key
    refused = [(key.id, False), (plain.id, True), ("nobody", True)]
    for key_id, fits in refused:
        with pytest.raises(Unauthenticated, match="the signature is not that of a key"):
            ring.find_signed(key_id, lambda _, fits=fits: fits)  # type: ignore[misc]
    clock.advance(ms=1_001)
    with pytest.raises(Unauthenticated):
        ring.find_signed(key.id, lambda _: True)


def test_a_copy_for_a_backup_has_all_keys__and_opens_another_ring(
    ring: KeyRing, clock: VirtualClock
) -> None:
    assert ring.copied() is None
    _, text = ring.create("root", ADMIN)
    copied, documents = ring.copied(), InMemory()
    assert copied is not None
    documents.store_document("keys", copied)
    assert KeyRing(clock, documents).find(text).name == "root"
