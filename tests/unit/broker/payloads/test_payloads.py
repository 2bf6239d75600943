"""Covers: a broker's payload store: names, what waits, what is counted, copies, what is doomed.

Not covered: storing itself (tests/unit/payloads), what a broker does (tests/rules).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from dejaqueue.broker.payloads.payloads import UPLOAD_MS, WAITING_BYTES_MAX, Payloads
from dejaqueue.errors import JournalDamaged, ResourceExhausted, Unavailable
from dejaqueue.journal.registry import open_store
from dejaqueue.payloads.payload_store import PayloadStore
from dejaqueue.setting_groups import PayloadSettings
from dejaqueue.settings import BrokerSettings
from dejaqueue.testing.virtual_clock import VirtualClock
from tests.payload_stores import FaultyBucket


def made(root: Path, url: Path | None) -> Payloads:
    settings = BrokerSettings(
        payloads=PayloadSettings(url="" if url is None else str(url), inline_bytes_max=1_024)
    )
    payloads = Payloads(settings, VirtualClock(), ThreadPoolExecutor(4))
    store = open_store(str(root))
    payloads.open(store)
    store.close()
    return payloads


@pytest.fixture
def payloads(tmp_path: Path) -> Iterator[Payloads]:
    found = made(tmp_path / "journal", tmp_path / "payloads")
    yield found
    found.close()


def test_journals_keep_their_id__and_others_have_another(tmp_path: Path) -> None:
    ids = [made(tmp_path / name, tmp_path / "p").id for name in ("a", "a", "b")]
    assert ids[0] == ids[1] != ids[2]


def test_names_are_own_and_never_the_same(payloads: Payloads) -> None:
    names = {payloads.new_name("1-t") for _ in range(100)}
    assert len(names) == 100
    assert all(payloads.is_own(name) for name in names)
    assert not payloads.is_own("other/1-t/x")


def test_an_upload_for_one_message_is_kept_by_one_of_its_topic_while_it_is_young(
    payloads: Payloads,
) -> None:
    name = payloads.new_upload("1-t")
    assert name.startswith(f"{payloads.id}/1-t/once-")
    assert name.endswith("/")
    assert payloads.may_keep(name, "1-t")
    for owner in ("2-t", "1-t@0", "1"):
        assert not payloads.may_keep(name, owner)
    others = (payloads.new_upload(), f"{payloads.new_name('1-t')}/", name.replace(payloads.id, "x"))
    for other in others:
        assert not payloads.may_keep(other, "1-t")
    assert isinstance(payloads.clock, VirtualClock)
    payloads.clock.advance(ms=UPLOAD_MS - 1)
    assert payloads.may_keep(name, "1-t")
    payloads.clock.advance(ms=1)
    assert not payloads.may_keep(name, "1-t")


def test_payloads_go_directly_where_a_store_signs_and_they_are_not_encrypted(
    payloads: Payloads,
) -> None:
    assert not payloads.are_direct  # a directory
    assert payloads.store is not None
    payloads.store._bucket.signs = True
    assert payloads.are_direct
    payloads._is_sealed = True
    assert not payloads.are_direct
    payloads._is_sealed = False
    through = payloads.settings.payloads.model_copy(update={"direct": False})
    payloads.settings = payloads.settings.model_copy(update={"payloads": through})
    assert not payloads.are_direct


def test_without_a_url_nothing_goes_to_a_store__and_what_is_there_is_told(tmp_path: Path) -> None:
    with_store = made(tmp_path / "journal", tmp_path / "payloads")
    reference = with_store.put_beside("1-t", b"x").result()
    payloads = made(tmp_path / "journal", None)
    assert payloads.inline_bytes_max == -1
    [outcome] = payloads.get_all([reference])
    assert isinstance(outcome, Unavailable)
    assert "no payload store" in str(outcome)
    payloads.close()
    with_store.close()


def test_a_batch_with_a_large_payload_is_known(payloads: Payloads) -> None:
    def batch(*found: bytes) -> pa.RecordBatch:
        return pa.record_batch({"payload": pa.array(found, pa.binary())})

    assert payloads.takes(batch(b"a", b"b" * 1_025))
    assert not payloads.takes(batch(*[b"b" * 1_024] * 10))
    assert not payloads.takes(pa.record_batch({"id": pa.array([1] * 1_000)}))


def test_what_waits_is_bounded__but_one_is_let_in_alone(payloads: Payloads) -> None:
    payloads.hold(WAITING_BYTES_MAX + 1)
    with pytest.raises(ResourceExhausted, match="wait for the payload store"):
        payloads.hold(1)
    payloads.let_go(WAITING_BYTES_MAX + 1)
    payloads.hold(1)


def test_a_copy_that_is_made_again_is_the_same(payloads: Payloads, tmp_path: Path) -> None:
    payloads._is_sealed = True
    first = payloads.put_beside("1-t", b"x" * 2_000).result()
    [copy] = payloads.copied([first], "2-t.dead")
    [again] = payloads.copied([first], "2-t.dead")
    assert copy == again
    assert copy.name != first.name
    assert copy.key not in (first.key, b"")
    assert payloads.get(copy) == b"x" * 2_000
    gone = first._replace(name=f"{payloads.id}/1-t/none")
    assert payloads.copied([gone], "2-t.dead") == [gone]


def test_each_payload_has_its_own_outcome__and_all_are_counted(
    payloads: Payloads, tmp_path: Path
) -> None:
    found = [payloads.put_beside("1-t", bytes(number)).result() for number in range(1, 4)]
    lost = found[1]._replace(name="x/1-t/none")
    outcomes = payloads.get_all([found[0], lost, found[2]])
    assert (outcomes[0], outcomes[2]) == (bytes(1), bytes(3))
    assert isinstance(outcomes[1], JournalDamaged)
    bucket = FaultyBucket(tmp_path / "payloads")
    payloads.store = PayloadStore(bucket, payloads.clock.now_us)
    bucket.is_away = True
    assert isinstance(payloads.get_all([found[0]])[0], Unavailable)
    counts = payloads.counts
    assert (counts.stored, counts.stored_bytes) == (3, 6)
    assert (counts.fetched, counts.fetched_bytes) == (2, 4)
    assert (counts.failed, counts.damaged) == (1, 1)


def test_only_own_payloads_are_doomed__and_the_first_rings(payloads: Payloads) -> None:
    rung: list[int] = []
    payloads.on_doomed = lambda: rung.append(1)
    payloads.doom(["other/1-t/x"])
    assert not rung
    payloads.doom([f"{payloads.id}/1-t/x"])
    payloads.doom([f"{payloads.id}/1-t/y"])
    assert [one.name[-1] for one in payloads.doomed] == ["x", "y"]
    assert rung == [1]


def test_who_asks_after_the_end_is_told(tmp_path: Path) -> None:
    payloads = made(tmp_path / "journal", tmp_path / "payloads")
    reference = payloads.put_beside("1-t", b"x").result()
    payloads.close()
    with pytest.raises(Unavailable, match="stopping"):
        payloads.put_beside("1-t", b"y")
    assert all(
        isinstance(one, Unavailable)
        for one in payloads.get_all([reference, reference._replace(name="2")])
    )
