"""The process of a client ends with the one that asked for it; its answers: test_link.py."""

from __future__ import annotations

import pytest

from dejaqueue.celery.proxy import ProxyLink
from dejaqueue.errors import BadRequest
from tests.patience import PATIENCE_SECONDS


def test_it_ends_when_its_owner_does__without_a_word(url: str) -> None:
    link = ProxyLink(url, {})
    link.connect()
    link._end.shutdown(2)
    assert link._process.wait(PATIENCE_SECONDS) == 0
    link._reader.join()
    link._end.close()


def test_a_url_that_is_wrong_is_refused_there_too() -> None:
    with pytest.raises(BadRequest, match="dejaq://host:port"):
        ProxyLink("amqp://host", {})
