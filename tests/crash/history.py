"""What clients saw, and whether rules 1 to 6 held. Times are of the one clock of this machine."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Delivery:
    """The application was handed a message."""

    key: str
    message_id: int
    attempt: int
    due_ms: int
    payload: bytes
    received_us: int


@dataclass
class History:
    """Notes of all client threads. What was not answered is in `tried` only: it may have
    happened."""

    tried: dict[str, bytes] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    """key -> due, of sends that were answered."""
    moved: dict[str, int] = field(default_factory=dict)
    """key -> new due, of moves that were answered OK."""
    moved_us: dict[str, int] = field(default_factory=dict)
    """key -> when that was answered."""
    unsure: set[str] = field(default_factory=set)
    """Keys with a move or cancel that was not answered."""
    cancelled_us: dict[str, int] = field(default_factory=dict)
    """key -> when a cancel was answered OK."""
    acked_us: dict[str, int] = field(default_factory=dict)
    """key -> when an ack was answered OK."""
    deliveries: list[Delivery] = field(default_factory=list)
    is_one_of_many: bool = False
    """Other subscriptions have the same messages. A cancel counts in those that are not done with
    one (rule 20), so a message may be acked here and cancelled then."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def faults(self) -> list[str]:
        """Every breach of a rule, as a sentence; empty = all held."""
        by_key: dict[str, list[Delivery]] = defaultdict(list)
        for delivery in self.deliveries:
            by_key[delivery.key].append(delivery)
        return [
            *self._lost(by_key),
            *self._early(),
            *self._invented(),
            *self._after_the_end(by_key),
            *self._attempts(by_key),
        ]

    def _lost(self, by_key: dict[str, list[Delivery]]) -> list[str]:
        return [
            f"rule 1: {key} was acknowledged and never delivered"
            for key in self.sent
            if key not in by_key and key not in self.cancelled_us and key not in self.unsure
        ]

    def _early(self) -> list[str]:
        faults = []
        for delivery in self.deliveries:
            due_ms = self.sent.get(delivery.key, 0)
            if delivery.received_us > self.moved_us.get(delivery.key, 1 << 63):
                due_ms = self.moved[delivery.key]  # else it may have come, and come back, before
            known = delivery.attempt == 1 and delivery.key not in self.unsure
            if known and delivery.received_us < due_ms * 1_000:
                early_us = due_ms * 1_000 - delivery.received_us
                faults.append(f"rule 2: {delivery.key} came {early_us} µs before it was due")
            if delivery.received_us < delivery.due_ms * 1_000:
                faults.append(f"rule 2: {delivery.key} came before the due time it carries")
        return faults

    def _invented(self) -> list[str]:
        return [
            f"a delivery of {delivery.key} has bytes that nobody sent"
            for delivery in self.deliveries
            if self.tried.get(delivery.key) != delivery.payload
        ]

    def _after_the_end(self, by_key: dict[str, list[Delivery]]) -> list[str]:
        """What was delivered, came back and was cancelled then is fine: a cancel may come late."""
        faults = []
        for what, ends in (("ack", self.acked_us), ("cancel", self.cancelled_us)):
            for key, end_us in ends.items():
                late = [d for d in by_key[key] if d.received_us > end_us]
                if late:
                    behind_ms = (late[0].received_us - end_us) / 1_000
                    faults.append(
                        f"rule 6: {key} was delivered after its {what} was answered "
                        f"(attempt {late[0].attempt}, {behind_ms:.1f} ms after)"
                    )
        if self.is_one_of_many:
            return faults
        both = self.acked_us.keys() & self.cancelled_us.keys()
        return faults + [f"rule 6: {key} was acked and cancelled" for key in sorted(both)]

    def _attempts(self, by_key: dict[str, list[Delivery]]) -> list[str]:
        faults = []
        for key, deliveries in by_key.items():
            twice = [a for a, n in Counter(d.attempt for d in deliveries).items() if n > 1]
            if twice:
                faults.append(f"rule 3: attempt {twice[0]} of {key} was delivered twice")
            if len({d.message_id for d in deliveries}) > 1:
                faults.append(f"rule 10: {key} exists as two messages")
        return faults
