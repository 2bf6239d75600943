"""One link for a process; a client in a process of its own where one here would hang."""

from __future__ import annotations

import os

import pytest

from dejaqueue.celery import choice
from dejaqueue.celery.link import LocalLink
from dejaqueue.celery.proxy import ProxyLink
from dejaqueue.errors import BadRequest


def test_connections_share_one_link(url: str) -> None:
    first = choice.shared(url, {}, apart=False, routes_topic="r")
    assert choice.shared(url, {}, apart=False, routes_topic="r") is first
    assert choice.shared(url, {"name": "other"}, apart=False, routes_topic="r") is not first
    assert isinstance(first.link, LocalLink)
    assert first.is_mine


def test_a_fork_of_a_process_with_a_client_has_one_apart(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "_local_process", 0)
    assert not choice.lives_apart()
    monkeypatch.setattr(choice, "_local_process", os.getpid())
    assert not choice.lives_apart()
    monkeypatch.setattr(choice, "_local_process", os.getpid() + 1)
    assert choice.lives_apart()
    made = choice.shared(url, {"name": "forked"}, apart=None, routes_topic="r")
    assert isinstance(made.link, ProxyLink)
    made.link.connect()


def test_green_threads_have_a_client_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "detect_environment", lambda: "gevent")
    assert choice.lives_apart()


def test_a_fork_shares_nothing_with_its_parent(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = choice.shared(url, {"name": "parent"}, apart=False, routes_topic="r")
    monkeypatch.setattr(choice, "_shared", {"parent": before})
    monkeypatch.setattr(choice, "_inherited", [])
    choice._forked()
    assert choice._shared == {}
    assert before in choice._inherited


def test_a_url_that_is_wrong_is_refused() -> None:
    with pytest.raises(BadRequest, match="dejaq://"):
        choice.shared("amqp://h", {}, apart=False, routes_topic="r")
