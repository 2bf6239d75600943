"""What is remembered of callers, and what is read of their headers."""

from __future__ import annotations

import pytest

from dejaqueue.access.pages import Pages
from dejaqueue.errors import BadRequest, Forbidden
from dejaqueue.http import page_check as module
from dejaqueue.http.page_check import PageCheck, what_asks
from dejaqueue.settings import BrokerSettings


@pytest.fixture
def check() -> PageCheck:
    return PageCheck(Pages.of(BrokerSettings()))


def test_what_is_remembered_is_bounded(check: PageCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LET_IN_MAX", 3)
    for number in range(10):
        check.check({b"user-agent": b"%d" % number}, is_secure=False, takes=False)
        assert 1 <= len(check._let_in) <= 3
    long = b"x" * (module._LET_IN_BYTES_MAX + 1)
    check.check({b"user-agent": long}, is_secure=False, takes=False)
    assert all(len(str(one)) < module._LET_IN_BYTES_MAX for one in check._let_in)


def test_who_is_refused_is_refused_again(check: PageCheck) -> None:
    for _ in range(2):
        with pytest.raises(Forbidden):
            check.check({b"origin": b"http://evil.example"}, is_secure=False, takes=False)
    assert not check._let_in


def test_headers_are_read_once__and_two_hosts_are_refused() -> None:
    headers = [
        (b"authorization", b"a"),
        (b"host", b"h"),
        (b"accept", b"*"),
        (b"authorization", b"b"),
    ]
    assert what_asks({"headers": headers}) == (["a", "b"], {b"host": b"h"})
    with pytest.raises(BadRequest, match="host"):
        what_asks({"headers": [*headers, (b"host", b"other")]})
