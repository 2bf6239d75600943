"""When TLS files are looked at, and what is said of it. The files themselves: tests/integration."""

from __future__ import annotations

import logging
import threading

import pytest

from dejaqueue.access.watching import TlsWatch
from dejaqueue.errors import BadRequest


class Files:
    """What has changed, what is wrong, and a bell for each look."""

    def __init__(self) -> None:
        self.changed, self.wrong = False, ""
        self.looks = threading.Semaphore(0)

    def reload(self) -> bool:
        self.looks.release()
        if self.wrong:
            raise BadRequest("server.tls_key", self.wrong, "a file")
        changed, self.changed = self.changed, False
        return changed


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_change_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    files = Files()
    watch = TlsWatch({"certificate": files}, 0)
    with caplog.at_level(logging.INFO, "dejaqueue.tls"):
        files.changed = True
        watch.look()
        watch.look()
    assert said(caplog) == ["certificate: the files were taken up anew"]


def test_what_is_wrong_is_told_once_and_again_when_it_was_right_between(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files, other = Files(), Files()
    watch = TlsWatch({"certificate": files, "papers": other}, 0)
    with caplog.at_level(logging.ERROR, "dejaqueue.tls"):
        for wrong in ("no pair", "no pair", "no PEM", "", "no PEM"):
            files.wrong = wrong
            watch.look()
    assert [line.partition("stay in use")[2].split(", got")[0] for line in said(caplog)] == [
        ": server.tls_key: no pair",
        ": server.tls_key: no PEM",
        ": server.tls_key: no PEM",
    ]
    assert other.looks.acquire(timeout=0), "what is wrong with one does not hold up the others"


def test_it_looks_by_itself_until_it_is_stopped() -> None:
    files = Files()
    watch = TlsWatch({"certificate": files}, 1)
    watch.start()
    for _ in range(3):
        assert files.looks.acquire(timeout=20)
    watch.stop()
    watch.stop()
    assert not watch._thread.is_alive()


def test_a_period_of_none_is_no_thread() -> None:
    watch = TlsWatch({"certificate": Files()}, 0)
    watch.start()
    assert not watch._thread.is_alive()
    watch.stop()
