"""Covers: which decrypted segments have to go.

Not covered: that rows are read meanwhile (tests/unit/journal/segments/test_clear_text.py).
"""

from __future__ import annotations

from dejaqueue.journal.encryption.clear_budget import ClearBudget


class Size:
    byte_count = counted_bytes = 0


def test_the_budget_takes_from_those_that_were_used_longest_ago() -> None:
    class Held:
        def __init__(self) -> None:
            self.clear: Size | None = None

        def use(self) -> None:
            if self.clear is None:
                self.clear = Size()
            self.clear.byte_count += 2 << 20
            budget.count(self)

        def forget_clear(self) -> None:
            self.clear = None

    budget = ClearBudget(5 << 20)
    held = [Held() for _ in range(3)]
    for one in (*held[:2], held[0], held[2]):
        one.use()
    assert [one.clear is not None for one in held] == [False, False, True]
