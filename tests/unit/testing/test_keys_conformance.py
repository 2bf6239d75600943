"""The suite of the keys notices a coordinator, and brokers, that break what it asks for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dejaqueue.access.key_set import KeySet
from dejaqueue.clock import SystemClock
from dejaqueue.coordinator.in_process import ProcessCoordinator, ProcessFacts
from dejaqueue.coordinator.interface import Coordinator
from dejaqueue.testing.keys_conformance import KeysConformance


class Suite(KeysConformance):
    @contextmanager
    def opened(self, count: int) -> Iterator[list[Coordinator]]:
        facts = ProcessFacts(SystemClock())
        yield [facts.open() for _ in range(count)]


Suite.__test__ = False  # type: ignore[attr-defined]


def puts_blindly(patch: pytest.MonkeyPatch) -> None:
    put = ProcessCoordinator.put

    def blind(
        self: ProcessCoordinator,
        key: str,
        value: bytes,
        revision: int | None = None,
        ttl_ms: int | None = None,
    ) -> int:
        threading.Event().wait(0.001)  # in one process two hardly meet
        return put(self, key, value, None, ttl_ms=ttl_ms)

    patch.setattr(ProcessCoordinator, "put", blind)


def forgets_revoked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeySet, "merged", lambda self, other: KeySet({**self.keys, **other.keys}, {}))


def remembers_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeySet, "without_forgotten", lambda self, now_ms: self)


MADE = Suite.test_2_of_keys_that_two_make_and_revoke_at_once_none_is_lost
OLD = Suite.test_3_a_document_of_before_a_forged_one_and_none_bring_no_revoked_key_back
ENDED = Suite.test_3_a_revoked_key_is_remembered_until_a_day_after_its_end


@pytest.mark.parametrize(
    ("plant", "test"), [(puts_blindly, MADE), (forgets_revoked, OLD), (remembers_for_ever, ENDED)]
)
def test_a_planted_fault_is_noticed(
    plant: Callable[[pytest.MonkeyPatch], None],
    test: Callable[[Suite], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    test(Suite())
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        for _ in range(20):  # whether two really meet is chance
            test(Suite())
