"""What a transaction of the client does when a broker answers strangely. The rest is in
tests/integration/test_transactions.py."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from dejaqueue.client.core import ClientCore
from dejaqueue.client.transacting import TransactionCore
from dejaqueue.errors import BadRequest, DejaQError, Refused, ResourceExhausted, Unavailable
from dejaqueue.wire.frames import Reply
from tests.unit.client.fake_transport import FakeTransport


class Calls(FakeTransport):
    """Answers actions in turn, and notes them."""

    def __init__(self, answers: list[dict[str, Any] | DejaQError], reply: Any = None) -> None:
        super().__init__(answer=reply or (lambda number, batch: Reply(number, batch.num_rows, 0)))
        self.answers = answers
        self.called: list[tuple[str, dict[str, Any]]] = []

    def action(
        self, name: str, body: dict[str, Any], *, repeats: bool = False
    ) -> Future[dict[str, Any]]:
        self.called.append((name, body))
        future: Future[dict[str, Any]] = Future()
        answer = self.answers.pop(0)
        if isinstance(answer, DejaQError):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future


def make(transport: Calls, retry_ms_max: int = 10_000) -> TransactionCore:
    return TransactionCore(ClientCore(transport, "", retry_ms_max, None), 1_000)


def test_a_commit_whose_answer_is_lost_is_asked_again() -> None:
    transport = Calls([{"transaction": "x"}, Unavailable("gone"), {}])
    transaction = make(transport)
    transaction.send_batch("t", [b"a"])
    transaction.commit()
    names = [name for name, _ in transport.called]
    assert names == ["begin_transaction", "commit_transaction", "commit_transaction"]
    assert transport.called[-1][1] == {"transaction": "x", "participants": ["t/0"]}
    assert transaction.outcome is True


def test_nobody_answers__the_same_call_can_be_made_later() -> None:
    transport = Calls([{"transaction": "x"}, Unavailable("gone"), {}])
    transaction = make(transport, retry_ms_max=0)
    transaction.send_batch("t", [b"a"])
    with pytest.raises(Unavailable):
        transaction.commit()
    assert transaction.outcome is None
    transaction.commit()


def test_what_could_not_be_staged_spoils_the_commit() -> None:
    full = ResourceExhausted("full")
    transport = Calls(
        [{"transaction": "x"}, {}], lambda number, batch: Reply(number, batch.num_rows, error=full)
    )
    transaction = make(transport)
    with pytest.raises(ResourceExhausted):
        transaction.send_batch("t", [b"a"])
    with pytest.raises(Refused, match="full"):
        transaction.commit()
    assert transport.called[-1][0] == "abort_transaction"
    assert transaction.outcome is False


def test_refused__it_is_over() -> None:
    transport = Calls([{"transaction": "x"}, Refused("was aborted")])
    transaction = make(transport)
    transaction.send_batch("t", [b"a"])
    with pytest.raises(Refused):
        transaction.commit()
    transaction.abort()
    with pytest.raises(Refused, match="over"):
        transaction.send_batch("t", [b"a"])


def test_nothing_staged__nothing_is_asked() -> None:
    transport = Calls([])
    make(transport).commit()
    make(transport).abort()
    transaction = make(transport)
    transaction.leave()
    assert transaction.outcome is False
    assert transport.called == []


def test_a_timeout_has_bounds() -> None:
    with pytest.raises(BadRequest, match="timeout"):
        TransactionCore(ClientCore(Calls([]), "", 0, None), 0)
