"""The audit log of requests: each that administers, and each that is refused.

Room: http.
Holds: the line is written before the answer goes out.
See: access/audit.py for the lines; access/routes.py for what administers; entrance.py, which knows
the caller.
"""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.types import Scope

from dejaqueue.access import audit
from dejaqueue.access.roles import Principal
from dejaqueue.access.routes import RULES
from dejaqueue.errors import DejaQError, NotAllowed

BEARER = "dejaq.bearer"
"""In the scope: the API key that came with the request; None = none did."""
CERTIFICATE = "dejaq.certificate"
"""In the scope: the name in the certificate that the connection has shown; absent = none."""
IS_CLOSING = "dejaq.is-closing"
"""In the scope: a function that says whether the connection is closed."""
SIGNED = "dejaq.signed"
"""In the scope, if the request was signed with an API key: any broker can verify that."""
SHARDED = "dejaq.sharded"
"""In the scope: what answers in place of the broker, where the topic is in shards."""
PRINCIPAL = "dejaq.principal"
"""Where in a request's scope the entrance keeps who it is from."""
OUTCOME = "dejaq.outcome"
"""Where in a request's scope the error is that it ended with."""
_FACTS = "dejaq.audit"
_ADMINISTERS = "dejaq.administers"
_TOPIC_FIELDS = ("topic", "queue_name")


def is_by_certificate(scope: Scope) -> bool:
    """Who calls is known by a certificate; there is no key that another broker could be shown."""
    caller: Principal | None = scope.get(PRINCIPAL)
    shows = scope.get(BEARER) is not None or SIGNED in scope
    return not shows and caller is not None and bool(caller.key_id)


def note(request: Request, **facts: object) -> None:
    """Further facts for the request's line: never a payload, never a secret."""
    request.scope.setdefault(_FACTS, {}).update(facts)


def note_administers(request: Request) -> None:
    """This request administers, whatever the rule of its route says."""
    request.scope[_ADMINISTERS] = True


def note_error(scope: Scope, error: DejaQError) -> None:
    """What the request ended with; a refusal is written down at once."""
    scope[OUTCOME] = error
    if isinstance(error, NotAllowed):
        who, peer, action, topic = _who_what(scope)
        audit.refused(who, peer, action, topic, error)


def record(scope: Scope, status: int) -> None:
    """Before the answer goes out: whoever has it can rely on the line."""
    error = scope.get(OUTCOME)
    rule = RULES.get((scope["method"], _path(scope)))
    administers = _ADMINISTERS in scope or (rule is not None and rule.audited)
    if not administers or isinstance(error, NotAllowed):
        return
    facts: dict[str, Any] = dict(scope.get(_FACTS, {}))
    facts.pop("topic", None)
    outcome = type(error).__name__ if error else "done" if status < 400 else str(status)
    if rule is not None and rule.takes:
        if outcome == "done":
            audit.record_some("taken", *_who_what(scope), outcome, **facts)
    elif outcome == "done":
        audit.record(*_who_what(scope), outcome, **facts)
    else:
        audit.record_some("failed", *_who_what(scope), outcome, **facts)


def _path(scope: Scope) -> str:
    """The route's path; before there is a route, the request's."""
    return getattr(scope.get("route"), "path", None) or str(scope["path"])


def _who_what(scope: Scope) -> tuple[str, str, str, str]:
    """Caller, address, action and topic of a request."""
    named = scope.get("path_params", {})
    topics = [named[field] for field in _TOPIC_FIELDS if field in named]
    topic = scope.get(_FACTS, {}).get("topic", topics[0] if topics else "")
    address, port = scope.get("client") or (audit.NOBODY, 0)
    caller: Principal | None = scope.get(PRINCIPAL)
    who = audit.NOBODY if caller is None else caller.name
    return who, f"{address}:{port}", f"{scope['method']} {_path(scope)}", str(topic)
