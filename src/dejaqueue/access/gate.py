"""The gate: finds out from what a call carries who calls, and for how long that holds.

Room: access. Asked by both servers, from any thread.
Holds: as soon as one API key exists, whoever brings none is refused; a stream that is open is told
when its key ends or is revoked, at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from dejaqueue.access.api_keys import CERTIFICATE
from dejaqueue.access.key_ring import REFUSAL, InMemory, KeyRing
from dejaqueue.access.roles import EVERYBODY, PEER, Principal, Role, TokenPrincipal
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


def only_bearer_of(authorizations: Sequence[str | bytes]) -> str | None:
    """The key in a call's authorization headers; None = there is none.

    Raises:
        Unauthenticated: there are two headers, of which a proxy before this may have looked at the
            other one; or it is no text.
    """
    if not authorizations:
        return None
    if len(authorizations) > 1 or not isinstance(authorizations[0], str):
        raise Unauthenticated("one authorization header, as `authorization: Bearer KEY`")
    return bearer_of(authorizations[0])


class Tokens(Protocol):
    """Who calls with a token of an issuer; access/oidc.py has one."""

    def is_token(self, text: str) -> bool:
        """True for what looks like one."""
        ...

    def principal(self, text: str) -> TokenPrincipal:
        """The bearer of this token. Raises Unauthenticated, Unavailable."""
        ...

    def is_live(self, principal: TokenPrincipal) -> bool:
        """True while it counts."""
        ...

    def ends_ms(self, principal: TokenPrincipal) -> int:
        """Until when it counts."""
        ...


class Gate:
    """Who calls.

    Args:
        keys: the broker's; None = there are none, and everybody may do everything.
        tokens: of an issuer; with them, calls need a key or a token even while there are no keys.
        observers_read: whoever may look at messages sees their payloads, too.
    """

    def __init__(
        self,
        keys: KeyRing | None = None,
        *,
        tokens: Tokens | None = None,
        observers_read: bool = False,
    ) -> None:
        self._observers_read = observers_read
        self._tokens = tokens
        self.keys = keys or KeyRing(SystemClock(), InMemory())
        self._mutex = threading.Lock()
        self._open: set[Permit] = set()
        self._wake = Wake()
        self._watch: threading.Thread | None = None
        self.keys.on_change.append(self._look)

    def principal(self, api_key: str | None, certificate: str = "") -> Principal:
        """The holder of this API key; None = none was sent.

        Args:
            certificate: the name in the certificate that the caller has shown; a key goes before.

        Raises:
            Unauthenticated, Unavailable
        """
        if api_key is not None and self.keys.is_peer(api_key):
            return PEER
        if not self.keys.required and self._tokens is None:
            return EVERYBODY
        if api_key is None:
            key = self.keys.named(f"{CERTIFICATE}{certificate}") if certificate else None
            if key is None:
                raise Unauthenticated(NEEDED)
            self.keys.check_confirmed()
            return key.principal
        if self._tokens is not None and self._tokens.is_token(api_key):
            # What its roles may do is said by keys, which others may have revoked.
            self.keys.check_confirmed()
            return self._tokens.principal(api_key)
        return self.keys.find(api_key).principal

    def signer(self, key_id: str, fits: Callable[[bytes], bool]) -> Principal:
        """Whose key a request was signed with; see KeyRing.find_signed. Raises Unauthenticated,
        Unavailable."""
        if not self.keys.required and self._tokens is None:
            return EVERYBODY
        return self.keys.find_signed(key_id, fits).principal

    def reads(self, principal: Principal, topic: str) -> bool:
        """True if whoever may look at a topic's messages sees their payloads, too."""
        if self._observers_read or principal.may(Role.MANAGE, topic):
            return True
        # Who may manage own messages alone sees no others, unless as an observer of all.
        sees_own = principal.sender_for(topic, Role.OBSERVE, Role.MANAGE).own
        return sees_own and principal.may(Role.MANAGE, topic, own=True)

    def check(self, principal: Principal) -> None:
        """Raise Unauthenticated if a caller let in before would not be now. Costs a lookup.

        Raises:
            Unauthenticated. Unavailable: whether the key still holds cannot be told at the moment.
        """
        if not self._is_live(principal):
            raise Unauthenticated(_refusal(principal))
        if self.keys.must_confirm and principal is not EVERYBODY:
            self.keys.check_confirmed()

    def admit(self, principal: Principal, end: Callable[[Unauthenticated], None]) -> Permit:
        """Let a stream be open. Use it in a `with`, for as long as the stream is.

        Args:
            end: called once, from any thread, when the key is revoked or ends; it must not wait.
        """
        return Permit(self, principal, end)

    # --- open streams ---------------------------------------------------------------------------

    def _enter(self, permit: Permit) -> None:
        with self._mutex:
            self._open.add(permit)
            if self._ends_ms(permit.principal) is not None:
                self._start_watch()
        if not self._is_live(permit.principal):
            self._look()  # revoked between the check and here

    def _leave(self, permit: Permit) -> None:
        with self._mutex:
            self._open.discard(permit)
        self._wake.ring()

    def _look(self) -> None:
        """End the streams of keys that are gone."""
        with self._mutex:
            ended = [one for one in self._open if not self._is_live(one.principal)]
            self._open.difference_update(ended)
        for one in ended:
            try:
                one.end(Unauthenticated(_refusal(one.principal)))
            except DejaQError as error:  # its topic or broker has just gone; the others still end
                log.info("a stream of %s had ended already: %s", one.principal.name, error)

    def _is_live(self, principal: Principal) -> bool:
        if isinstance(principal, TokenPrincipal):
            return self._tokens is not None and self._tokens.is_live(principal)
        return self.keys.is_live(principal.key_id)

    def _ends_ms(self, principal: Principal) -> int | None:
        if isinstance(principal, TokenPrincipal):
            return None if self._tokens is None else self._tokens.ends_ms(principal)
        return self.keys.ends_ms(principal.key_id)

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
                ends = [self._ends_ms(one.principal) for one in self._open]
                instants = [end_ms for end_ms in ends if end_ms is not None]
                if not instants:
                    self._watch = None
                    return
            self.keys.clock.wait_until(min(instants) * 1_000, self._wake)


def _refusal(principal: Principal) -> str:
    if isinstance(principal, TokenPrincipal):
        return "this token has ended, or lost its roles"
    return REFUSAL if principal.key_id else NEEDED


class Permit:
    """The right of a stream to be open."""

    def __init__(
        self, gate: Gate, principal: Principal, end: Callable[[Unauthenticated], None]
    ) -> None:
        self._gate = gate
        self.principal = principal
        self.end = end

    def check(self) -> None:
        """Raise Unauthenticated if it is over, Unavailable if that cannot be told."""
        self._gate.check(self.principal)

    def __enter__(self) -> Permit:
        self._gate._enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._gate._leave(self)
