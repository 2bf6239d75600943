"""Which URL opens which coordinator."""

from __future__ import annotations

import pytest

from dejaqueue.coordinator.registry import open_coordinator
from dejaqueue.errors import BadRequest


def test_brokers_of_one_process_share_a_name() -> None:
    first, second = open_coordinator("memory:one"), open_coordinator("memory:one")
    other = open_coordinator("memory:other")
    first.put("a", b"1")
    assert second.get("a") is not None
    assert other.get("a") is None
    for coordinator in (first, second, other):
        coordinator.close()
    again = open_coordinator("memory:one")
    assert again.get("a") is None
    again.close()


@pytest.mark.parametrize("url", ["", "a/path", "consul://host", "etcd:host", "memory"])
def test_other_urls_are_named_and_refused(url: str) -> None:
    with pytest.raises(BadRequest, match="coordinator: memory:NAME, etcd"):
        open_coordinator(url)


def test_a_refusal_does_not_repeat_the_password() -> None:
    with pytest.raises(BadRequest) as refusal:
        open_coordinator("consul://me:secret@host")
    assert "secret" not in str(refusal.value)
