"""What both clients share: links that make room, names, the broker's time."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dejaqueue.client import core as core_module
from dejaqueue.client.core import CLOCK_CALLS, CLOCK_US_MAX, ClientCore
from dejaqueue.errors import Unavailable
from dejaqueue.limits import PRODUCER_NAME_BYTES_MAX
from dejaqueue.testing.virtual_clock import VirtualClock
from dejaqueue.wire.descriptors import WriteStream
from tests.unit.client.fake_transport import SECONDS_MAX, FakeTransport, ok


def core_of(transport: FakeTransport, name: str = "") -> ClientCore:
    return ClientCore(transport, name, 1_000, VirtualClock(start_ms=1_000))


def test_one_link_per_kind_of_batch() -> None:
    core = core_of(FakeTransport(ok))
    one = core.link(WriteStream("t"), ("payload",))
    assert core.link(WriteStream("t"), ("payload",)) is one
    assert core.link(WriteStream("t"), ("payload", "due")) is not one
    assert core.link(WriteStream("t", acks="leader"), ("payload",)) is not one
    assert core.link(WriteStream("u"), ("payload",)) is not one
    core.close()


def test_links_unused_for_long_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_module, "LINKS_MAX", 3)
    core = core_of(FakeTransport(ok))
    first = core.link(WriteStream("topic-0"), ("payload",))
    for number in range(1, 4):
        assert core.send_batch(f"topic-{number}", [b"x"], "all").ok
    assert core.link(WriteStream("topic-0"), ("payload",)) is not first
    # Whoever had it may send all the same: nothing ended, and closing waits for it.
    batch = pa.record_batch({"payload": [b"x"]})
    assert first.send(batch).result(SECONDS_MAX).error is None
    core.close()
    assert isinstance(first.send(batch).exception(SECONDS_MAX), Unavailable)


def test_links_that_wait_for_an_answer_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_module, "LINKS_MAX", 1)
    transport = FakeTransport()
    core = core_of(transport)
    batch = pa.record_batch({"payload": [b"x"]})
    busy = core.link(WriteStream("busy"), ("payload",))
    answer = busy.send(batch)
    core.link(WriteStream("idle"), ("payload",))
    assert core.link(WriteStream("busy"), ("payload",)) is busy
    transport.writes[0].answer(0)
    assert answer.result(SECONDS_MAX).error is None
    core.close()


def test_a_gather_that_made_room_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_module, "LINKS_MAX", 2)
    core = core_of(FakeTransport(ok))
    gather = core.gather("t", (False, False))
    assert core.gather("t", (False, False)) is gather
    for number in range(2):
        core.gather(f"topic-{number}", (False, False))
    assert core.gather("t", (False, False)) is not gather
    core.close()


def test_producer_names_are_unique_and_fit() -> None:
    core = core_of(FakeTransport(ok), name="né" * 60)
    names = {core._producer_name() for _ in range(10)}
    assert len(names) == 10
    assert all(len(name.encode()) <= PRODUCER_NAME_BYTES_MAX for name in names)
    assert all(name.startswith("né") for name in names)


def test_the_brokers_time_is_measured_and_kept_for_a_while() -> None:
    transport = FakeTransport(actions={"clock": {"broker_us": 9_000_000}})
    clock = VirtualClock(start_ms=1_000)
    core = ClientCore(transport, "", 1_000, clock)
    assert core.now_ms() == 9_000
    clock.advance(ms=1_500)
    assert core.now_ms() == 10_500
    assert len(transport.calls) == CLOCK_CALLS
    clock.advance(us=CLOCK_US_MAX)
    assert core.now_ms() == 9_000
    assert len(transport.calls) == 2 * CLOCK_CALLS


def test_the_time_is_asked_again_while_no_broker_is_there() -> None:
    missing = [Unavailable("restarts"), Unavailable("restarts")]

    def answer(body: dict[str, int]) -> dict[str, int]:
        if missing:
            raise missing.pop()
        return {"broker_us": 9_000_000}

    transport = FakeTransport(actions={"clock": answer})
    with pytest.raises(Unavailable):
        ClientCore(transport, "", 0, None).now_ms()
    assert ClientCore(transport, "", 10_000, None).now_ms() >= 9_000
    assert not missing


def test_a_shared_clock_is_not_measured() -> None:
    transport = FakeTransport(shares_clock=True)
    assert ClientCore(transport, "", 0, VirtualClock(start_ms=1_000)).now_ms() == 1_000
    assert transport.calls == []
