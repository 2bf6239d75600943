"""The API keys that all brokers of a cluster have: a fact of the coordinator, and its freshness.

    fact documents/keys        the document of access/key_set.py, sealed if the cluster has a secret
    fact documents/key-uses    that of access/key_uses.py, to which each broker adds in minutes

Room: cluster. Any thread may call.
Holds: of two brokers that change the keys at once one wins, and the other tries again on what it
then finds; what is known counts for four fifths of the lease from before it was asked for, as a
membership does, and not before it is in force. So a key that was revoked works nowhere later than
that after the answer, also not at a broker that is cut off.
See: access/key_ring.py; node.py, which calls `refresh`; docs/adr/0020-keys-of-a-cluster.md.
"""

from __future__ import annotations

from collections.abc import Callable

from dejaqueue.access.key_ring import DOCUMENT, Documents, KeyRing
from dejaqueue.access.key_set import key_set_of
from dejaqueue.access.seal import Seal
from dejaqueue.clock import Clock, SteadyClock
from dejaqueue.coordinator.bells import VALUE_BYTES_MAX
from dejaqueue.coordinator.interface import Conflict, Coordinator, Fact
from dejaqueue.errors import Refused, Unavailable

PREFIX = "documents/"
TRIES = 64
"""Each is lost to a change of another broker, and each broker makes one at a time."""


class SharedKeys:
    """Where the keys of a cluster are kept (key_ring.Documents), as one broker sees it.

    Args:
        lease_ms: of the broker's membership.
        clock: elapsed time.
        seal: of the cluster's secret; None = it has none, and whoever may write to the coordinator
            may make keys.
        reseals: take over what is stored whatever its seal is, and seal it.
        copy: where this broker keeps what it knows of them for itself, too; None = nowhere.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        lease_ms: int,
        clock: Clock | None = None,
        seal: Seal | None = None,
        *,
        reseals: bool = False,
        copy: Documents | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._lease_ms = lease_ms
        self._clock = clock or SteadyClock()
        self._seal, self._reseals, self._copy = seal, reseals, copy
        self._ring: KeyRing | None = None
        self._confirmed_until_us = 0

    def open(self, ring: KeyRing) -> None:
        """Have a broker's keys be those of the cluster. Raises as KeyRing.open."""
        self._ring = None
        began_us = self._clock.now_us()
        ring.open(
            self,
            self._seal,
            reseals=self._reseals,
            copy=self._copy,
            is_confirmed=self.is_confirmed,
        )
        self._ring = ring
        self._confirm(began_us)

    def refresh(self) -> None:
        """Take over what others have changed. Raises Unavailable."""
        if self._ring is not None:
            began_us = self._clock.now_us()
            self._ring.refresh()
            self._confirm(began_us)

    def keep_uses(self) -> None:
        """Store when keys were used at this broker: it leaves. Raises nothing."""
        if self._ring is not None:
            self._ring.keep_uses()

    def _confirm(self, began_us: int) -> None:
        self._confirmed_until_us = max(self._confirmed_until_us, began_us + self._lease_ms * 800)

    def is_confirmed(self) -> bool:
        """True if the keys were read so lately that they may be gone by."""
        return self._clock.now_us() < self._confirmed_until_us

    def load_document(self, name: str) -> str | None:
        """What is stored, None at first. Raises Unavailable."""
        return _text(self._coordinator.get(PREFIX + name))

    def put_back(self, text: str) -> None:
        """Store keys that were kept elsewhere without a seal, unless there are some: those of a
        backup. Raises JournalDamaged, Refused, Unavailable."""
        sealed = key_set_of(text, None).to_text(self._seal)
        self.change_document(DOCUMENT, lambda found: sealed if found is None else None)

    def change_document(self, name: str, change: Callable[[str | None], str | None]) -> None:
        """Store what `change` makes of what is stored; None = it stays.

        Args:
            change: called again whenever another broker was quicker; what it raises is passed on.

        Raises:
            Refused: it has become too large. Unavailable: whether it was stored is not known.
        """
        key = PREFIX + name
        for _ in range(TRIES):
            found = self._coordinator.get(key)
            text = change(_text(found))
            if text is None:
                return
            value = text.encode()
            if len(value) > VALUE_BYTES_MAX:
                limit = f"brokers of a cluster share at most {VALUE_BYTES_MAX} bytes"
                raise Refused(f"{name}: {limit}, got: {len(value)}")
            try:
                self._coordinator.put(key, value, 0 if found is None else found.revision)
            except Conflict:
                continue
            except Unavailable:
                if _text(self._coordinator.get(key)) != text:
                    raise
            return
        raise Unavailable(f"{name}: others keep changing them", 100)


def _text(fact: Fact | None) -> str | None:
    """What is no text is not refused here: that is for the reader to do."""
    return None if fact is None else fact.value.decode("utf-8", "replace")
