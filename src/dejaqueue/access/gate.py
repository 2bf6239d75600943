"""The gate: from what a call carries to who calls, and for how long that holds.

Room: access. Asked by both servers, from any thread.
Holds: as soon as one API key exists, whoever brings none is refused; a stream that is open is told
when its key ends or is revoked, at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from dejaqueue.access.key_ring import REFUSAL, InMemory, KeyRing
from dejaqueue.access.roles import EVERYBODY, PEER, Principal
from dejaqueue.clock import SystemClock, Wake
from dejaqueue.errors import DejaQError, Unauthenticated

log = logging.getLogger("dejaqueue.access")

NEEDED = "an API key is needed, as `authorization: Bearer KEY`"


def bearer_of(authorization: str | None) -> str | None:
    """The key in an authorization header; None = there is none.

    >>> bearer_of("Bearer dq_1_2"), bearer_of("Basic eDp5"), bearer_of(None)
    ('dq_1_2', None, None)
    """
    scheme, _, key = (authorization or "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


class Gate:
    """Who calls.

    Args:
        keys: the broker's; None = there are none, and everybody may do everything.
    """

    def __init__(self, keys: KeyRing | None = None) -> None:
        self.keys = keys or KeyRing(SystemClock(), InMemory())
        self._mutex = threading.Lock()
        self._open: set[Admission] = set()
        self._wake = Wake()
        self._watch: threading.Thread | None = None
        self.keys.on_change.append(self._look)

    def principal(self, api_key: str | None) -> Principal:
        """Who has this API key; None = none was sent. Raises Unauthenticated."""
        if api_key is not None and self.keys.is_peer(api_key):
            return PEER
        if not self.keys.required:
            return EVERYBODY
        if api_key is None:
            raise Unauthenticated(NEEDED)
        return self.keys.find(api_key).principal

    def check(self, principal: Principal) -> None:
        """Raise Unauthenticated if who was let in before would not be now. Costs a lookup."""
        if not self.keys.is_live(principal.key_id):
            raise Unauthenticated(REFUSAL if principal.key_id else NEEDED)

    def admit(self, principal: Principal, end: Callable[[Unauthenticated], None]) -> Admission:
        """Let a stream be open. Use it in a `with`, for as long as the stream is.

        Args:
            end: called once, from any thread, when the key is revoked or ends; it must not wait.
        """
        return Admission(self, principal, end)

    # --- open streams ---------------------------------------------------------------------------

    def _enter(self, admission: Admission) -> None:
        with self._mutex:
            self._open.add(admission)
            if self.keys.ends_ms(admission.principal.key_id) is not None:
                self._start_watch()
        if not self.keys.is_live(admission.principal.key_id):
            self._look()  # revoked between the check and here

    def _leave(self, admission: Admission) -> None:
        with self._mutex:
            self._open.discard(admission)
        self._wake.ring()

    def _look(self) -> None:
        """End the streams of keys that are gone."""
        with self._mutex:
            ended = [one for one in self._open if not self.keys.is_live(one.principal.key_id)]
            self._open.difference_update(ended)
        for one in ended:
            try:
                one.end(Unauthenticated(REFUSAL if one.principal.key_id else NEEDED))
            except DejaQError as error:  # its topic or broker has just gone; the others still end
                log.info("a stream of %s had ended already: %s", one.principal.name, error)

    def _start_watch(self) -> None:
        """Under the mutex: have a thread wait for the next end of a key."""
        if self._watch is None:
            self._watch = threading.Thread(target=self._wait_for_ends, name="dejaq-gate")
            self._watch.daemon = True
            self._watch.start()
        else:
            self._wake.ring()

    def _wait_for_ends(self) -> None:
        while True:
            self._look()
            with self._mutex:
                ends = [self.keys.ends_ms(one.principal.key_id) for one in self._open]
                instants = [end_ms for end_ms in ends if end_ms is not None]
                if not instants:
                    self._watch = None
                    return
            self.keys.clock.wait_until(min(instants) * 1_000, self._wake)


class Admission:
    """The right of a stream to be open."""

    def __init__(
        self, gate: Gate, principal: Principal, end: Callable[[Unauthenticated], None]
    ) -> None:
        self._gate = gate
        self.principal = principal
        self.end = end

    def check(self) -> None:
        """Raise Unauthenticated if it is over."""
        self._gate.check(self.principal)

    def __enter__(self) -> Admission:
        self._gate._enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._gate._leave(self)
