"""Celery on DejaQ: a transport of kombu, and a result backend.

    import dejaqueue.celery
    app = Celery(broker="dejaq://localhost:7464", result_backend="dejaq://localhost:7464")

Room: celery. Loads the client, never the broker. kombu and Celery are imported here alone.
Holds: kombu knows the schemes `dejaq` and `dejaqs` once this is imported (kombu has no entry point
for transports; the result backend has one, and is found without an import).
See: docs/guides/from-celery.md; docs/adr/0040-celery-without-grpc-across-forks.md.
"""

from __future__ import annotations

from dejaqueue.errors import BadRequest

try:
    from kombu.transport import TRANSPORT_ALIASES
except ModuleNotFoundError as missing:
    raise BadRequest("kombu", "installed: pip install 'dejaqueue[celery]'", str(missing)) from None

from dejaqueue.celery.transport import Transport

__all__ = ["Transport"]

TRANSPORT_ALIASES["dejaq"] = TRANSPORT_ALIASES["dejaqs"] = "dejaqueue.celery:Transport"
