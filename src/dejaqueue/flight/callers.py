"""Finds out who makes a Flight call, before anything of the call is read.

Room: flight. Middleware: gRPC's headers in, a Principal out.
Holds: every call passes here, those that we do not serve too; a caller that is not known learns
nothing but that.
See: access/gate.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow.flight as flight

from dejaqueue.access import audit
from dejaqueue.access.gate import Gate, only_bearer_of
from dejaqueue.access.roles import Principal
from dejaqueue.client.flight_transport import FOLLOWS
from dejaqueue.errors import Elsewhere, NotAllowed
from dejaqueue.flight.errors import translated
from dejaqueue.flight.forwarding import FORWARDED, Onward
from dejaqueue.flight.sharded import ShardedBroker, ShardedBrokers

KEY = "access"
"""Under which Flight keeps the middleware of a call."""


class Caller(flight.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """The principal that makes this call.

    Attributes:
        principal: who; None = to be found out by the certificate, which Flight shows only later.
        bearer: the API key that came with it, to pass the call on with; None = there was none.
        is_final: it is not passed on: another broker did, or the caller goes there itself.
        is_forwarded: another broker has passed it on.
        ended: told how the call ended; None = nobody is.
    """

    def __init__(
        self,
        principal: Principal | None,
        bearer: str | None,
        gate: Gate,
        *,
        is_final: bool,
        is_forwarded: bool,
    ) -> None:
        self._gate = gate
        self.principal = principal
        self.bearer = bearer
        self.is_final = is_final
        self.is_forwarded = is_forwarded
        self.ended: Callable[[BaseException | None], None] | None = None

    def call_completed(self, exception: BaseException | None) -> None:
        """The call ended."""
        if self.ended is not None:
            self.ended(exception)

    def __repr__(self) -> str:
        return f"Caller({self.principal.name if self.principal else 'by certificate'})"

    def admitted(self, context: flight.ServerCallContext) -> Principal:
        """Who calls. Raises Unauthenticated."""
        if self.principal is None:
            name = context.peer_identity().decode("utf-8", "replace")
            try:
                self.principal = self._gate.principal(None, name)
            except NotAllowed as refused:
                audit.refused(audit.NOBODY, context.peer(), "call", "", refused)
                raise
        return self.principal

    @property
    def is_by_certificate(self) -> bool:
        """No key came that another broker could be shown."""
        return self.bearer is None and self.principal is not None and bool(self.principal.key_id)


class Callers(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets calls in.

    Args:
        mutual: callers have shown certificates, which may say who they are.
    """

    def __init__(self, gate: Gate, *, mutual: bool = False) -> None:
        self._gate = gate
        self._mutual = mutual

    def start_call(self, call: Any, headers: dict[str, list[str | bytes]]) -> Caller:
        """Who calls. Flight does not say here from which address."""
        with translated():
            try:
                bearer = only_bearer_of(headers.get("authorization", []))
                is_forwarded = FORWARDED in headers
                # What a broker passes on comes with the broker's certificate, which says nothing.
                by_certificate = self._mutual and bearer is None and not is_forwarded
                return Caller(
                    None if by_certificate else self._gate.principal(bearer),
                    bearer,
                    self._gate,
                    is_final=is_forwarded or FOLLOWS in headers,
                    is_forwarded=is_forwarded,
                )
            except NotAllowed as refused:
                name = str(getattr(call.method, "name", call.method)).lower()
                audit.refused(audit.NOBODY, audit.NOBODY, name, "", refused)
                raise


def caller_of(context: flight.ServerCallContext) -> Principal:
    """The principal that makes a call. Raises Unauthenticated if that is found out only now."""
    caller: Caller = context.get_middleware(KEY)
    return caller.admitted(context)


def onward_sharded(
    context: flight.ServerCallContext, elsewhere: Elsewhere, brokers: ShardedBrokers
) -> ShardedBroker:
    """What answers a call about a topic in shards.

    Raises:
        Elsewhere: the caller goes to each shard itself.
    """
    caller: Caller = context.get_middleware(KEY)
    if caller.is_final or caller.is_by_certificate:
        raise elsewhere
    return brokers.of(caller.bearer)


def onward(context: flight.ServerCallContext, elsewhere: Elsewhere) -> Onward:
    """Where a call goes that another broker answers.

    Raises:
        Elsewhere: it has been passed on already, the caller goes there itself, is known by a
            certificate that this broker does not have, or nobody knows where to.
    """
    caller: Caller = context.get_middleware(KEY)
    if caller.is_final or caller.is_by_certificate or not elsewhere.url:
        raise elsewhere
    return Onward(elsewhere.url, caller.bearer)
