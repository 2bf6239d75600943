"""Covers: a settle is answered on whatever connection; an error nobody waits for is raised once.

Not covered: which settles a consumer makes (test_consume_core.py).
"""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np
import pytest

from dejaqueue.client.consuming.holding import Lease, Slice
from dejaqueue.client.consuming.settling import Settling
from dejaqueue.client.link import WriteLink
from dejaqueue.clock import SystemClock
from dejaqueue.errors import DejaQError, InternalError, Unavailable
from dejaqueue.wire.descriptors import WriteStream
from dejaqueue.wire.frames import Reply, Settle, SettleOp
from tests.unit.client.fake_transport import FakeTransport, delivery_batch

ACK = Settle(SettleOp.ACK, 1, 0, 1)


class _Channel:
    """A consume channel of which only `settle` is used."""

    def __init__(self, *, wrong: DejaQError | None = None) -> None:
        self.wrong = wrong

    def settle(self, settle: Settle) -> Future[Reply]:
        answer: Future[Reply] = Future()
        if self.wrong is None:
            answer.set_result(Reply(settle.number))
        else:
            answer.set_exception(self.wrong)
        return answer


class _Fixture:
    def __init__(self) -> None:
        self.transport = FakeTransport(lambda number, batch: Reply(number, batch.num_rows))
        self.streams: list[WriteStream] = []
        self.rung = 0
        self.settling = Settling("t", self.link, self.ring)

    def link(self, stream: WriteStream) -> WriteLink:
        self.streams.append(stream)
        return WriteLink(self.transport, stream, SystemClock(), retry_ms_max=1_000)

    def ring(self) -> None:
        self.rung += 1


def _rows() -> Slice:
    lease = Lease(0, 1, 2, 30_000, 1 << 50, 1, 2)
    ids = np.array([5, 6], dtype=np.int64)
    return Slice(lease, delivery_batch([0, 0]), ids, ids, np.ones(2, dtype=np.uint16))


def test_an_answer_has_a_status_for_each_row() -> None:
    fixture = _Fixture()
    answer = fixture.settling.send(ACK, _rows(), _Channel())  # type: ignore[arg-type]
    assert answer.result().all_statuses().tolist() == [0, 0]


@pytest.mark.parametrize("channel", [None, _Channel(wrong=Unavailable("broken"))])
def test_without_a_stream_it_goes_by_ids_on_one_of_its_own(channel: _Channel | None) -> None:
    fixture = _Fixture()
    answer = fixture.settling.send(ACK, _rows(), channel)  # type: ignore[arg-type]
    assert answer.result(5).rows == 2
    assert [stream.op for stream in fixture.streams] == ["ack"]


def test_after_the_close_it_is_not_sent_again() -> None:
    fixture = _Fixture()
    fixture.settling.close()
    broken = _Channel(wrong=Unavailable("broken"))
    answer = fixture.settling.send(ACK, _rows(), broken)  # type: ignore[arg-type]
    assert isinstance(answer.exception(5), Unavailable)
    assert fixture.streams == []


def test_what_nobody_waits_for_is_raised_once() -> None:
    fixture = _Fixture()
    wrong = _Channel(wrong=InternalError("no"))
    fixture.settling.note(fixture.settling.send(ACK, _rows(), wrong))  # type: ignore[arg-type]
    assert fixture.rung == 1
    with pytest.raises(InternalError):
        fixture.settling.raise_error()
    fixture.settling.raise_error()
