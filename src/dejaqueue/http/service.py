"""What the routes need: the broker, the gate, and what the process knows of itself.

Room: http.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from fastapi import Request

from dejaqueue.access.gate import Gate
from dejaqueue.access.quotas import Account
from dejaqueue.access.roles import Principal
from dejaqueue.broker.broker import Broker
from dejaqueue.client.credentials import Tls
from dejaqueue.http.auditing import BEARER, PRINCIPAL, SHARDED


def _alone(bearer: str | None, own: dict[str, Any]) -> dict[str, Any]:
    return own


@dataclass(frozen=True, slots=True)
class Service:
    """One for each application.

    Attributes:
        broker: may be not started yet: its calls raise Unavailable then.
        gate: says who calls.
        is_ready: True while the broker takes calls.
        forwards: True if what another broker serves is passed on to it.
        tls: for brokers at https; None = the system's certificates are trusted.
        gather: adds what other brokers say to the stats of this one, asked with the caller's key.
        is_divided: the broker is one of several processes on one machine.
        flight_tls: for their Flight ports, where a topic is in shards.
    """

    broker: Broker
    gate: Gate
    is_ready: Callable[[], bool]
    forwards: bool = False
    tls: ssl.SSLContext | None = None
    gather: Callable[[str | None, dict[str, Any]], dict[str, Any]] = _alone
    flight_tls: Tls | None = None
    is_divided: bool = False

    def stats(self, request: Request) -> dict[str, Any]:
        """Numbers of the topics of all brokers."""
        return self.gather(request.scope.get(BEARER), self.broker.call("stats"))


def service_of(request: Request) -> Service:
    """The service of the application that a request came to."""
    service: Service = request.app.state.service
    sharded = request.scope.get(SHARDED)
    if sharded is not None:  # it has the calls of a broker that the routes make
        return replace(service, broker=cast(Broker, sharded))
    return service


def account_of(request: Request) -> Account:
    """Whose quotas a request counts for."""
    service: Service = request.app.state.service
    client = request.client
    return service.broker.quotas.of(principal_of(request), client.host if client else "")


def principal_of(request: Request) -> Principal:
    """Who calls, as the entrance found it."""
    caller: Principal = request.scope[PRINCIPAL]
    return caller
