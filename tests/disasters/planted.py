"""Bugs that disasters have to find, each planted into the processes of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dejaqueue.broker.backup import archiver
from dejaqueue.broker.backup.archiver import Archiver
from dejaqueue.broker.standby.standby import Standby

PLANTED = "TESTS_DISASTERS_PLANTED"
"""The variable of the environment that names a bug."""
EARLY_MS = 5_000


def _instants_are_later() -> None:
    """A piece says that it has all of an instant that was not over."""
    build: Any = Archiver._next_piece

    def next_piece(self: Archiver, *arguments: Any) -> Any:
        piece, is_last = build(self, *arguments)
        if piece is not None and piece.at_ms:
            piece = replace(piece, at_ms=piece.at_ms + EARLY_MS)
        return piece, is_last

    setattr(Archiver, "_next_piece", next_piece)  # noqa: B010 - mypy takes no other


def _the_fence_is_not_read() -> None:
    """Who was replaced starts again."""
    setattr(Archiver, "_check_fence", lambda *_: None)  # noqa: B010


def _older_copies_go_on() -> None:
    """An older copy of the journals takes the next backup."""
    setattr(archiver, "check_line", lambda *_: None)  # noqa: B010


def _a_standby_is_promoted_before_it_has_read() -> None:
    """It takes the place of the other one with what it was filled with."""
    setattr(Standby, "_follow", lambda *_: False)  # noqa: B010
    setattr(Standby, "_catch_up", lambda *_: None)  # noqa: B010
    setattr(Standby, "_stepped", lambda *_: False)  # noqa: B010


PLANTS: dict[str, Callable[[], None]] = {
    "instants are later": _instants_are_later,
    "the fence is not read": _the_fence_is_not_read,
    "older copies go on": _older_copies_go_on,
    "a standby is promoted before it has read": _a_standby_is_promoted_before_it_has_read,
}


def plant(name: str) -> None:
    """Have this process have a bug; "" = none."""
    if name:
        PLANTS[name]()
