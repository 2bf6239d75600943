"""Bugs that are planted in the API keys of a cluster; see tests/simulation/mutants.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dejaqueue.access.api_keys import ApiKey
from dejaqueue.access.key_ring import Change, KeyRing
from dejaqueue.access.key_set import KeySet
from dejaqueue.access.seal import Seal
from dejaqueue.cluster.shared_keys import PREFIX, SharedKeys
from dejaqueue.errors import Unavailable

Mutant = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, Mutant] = {}


def mutant(function: Mutant) -> Mutant:
    """Register a planted bug."""
    MUTANTS[function.__name__] = function
    return function


def _blindly(self: SharedKeys, name: str, change: Change) -> None:
    text = change(self.load_document(name))
    if text is not None:
        self._coordinator.put(PREFIX + name, text.encode())


@mutant
def keys_are_read_changed_and_written(patch: pytest.MonkeyPatch) -> None:
    """As they were before there was a merger: whoever writes last is right."""
    patch.setattr(SharedKeys, "change_document", _blindly)

    def together(self: KeyRing, stored: KeySet | None, known: KeySet | None) -> KeySet:
        return stored or known or KeySet()

    patch.setattr(KeyRing, "_together", together)
    patch.setattr(KeyRing, "_is_lacking", lambda self, stored: False)


@mutant
def keys_are_stored_without_comparing(patch: pytest.MonkeyPatch) -> None:
    """All else is there: what is lost is put back; but two have one name."""
    patch.setattr(SharedKeys, "change_document", _blindly)


@mutant
def a_revoked_key_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def without(self: KeySet, key: ApiKey) -> KeySet:
        return KeySet({n: one for n, one in self.keys.items() if n != key.id}, self.revoked)

    patch.setattr(KeySet, "without", without)


@mutant
def keys_need_no_confirmation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharedKeys, "is_confirmed", lambda self: True)


@mutant
def keys_are_confirmed_by_asking(patch: pytest.MonkeyPatch) -> None:
    """Whether an answer came does not matter."""
    inner = SharedKeys.refresh

    def refresh(self: SharedKeys) -> None:
        self._confirm(self._clock.now_us())
        inner(self)

    patch.setattr(SharedKeys, "refresh", refresh)


@mutant
def a_change_of_keys_is_answered_whatever_came_of_it(patch: pytest.MonkeyPatch) -> None:
    inner = SharedKeys.change_document

    def change_document(self: SharedKeys, name: str, change: Change) -> None:
        try:
            inner(self, name, change)
        except Unavailable:
            change(None)

    patch.setattr(SharedKeys, "change_document", change_document)


@mutant
def nobody_hears_of_new_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeyRing, "refresh", lambda self: None)


@mutant
def seals_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    def fits(self: Seal, values: dict[str, Any]) -> bool:
        return True

    patch.setattr(Seal, "fits", fits)
