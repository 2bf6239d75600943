"""Readiness: the broker's health, and whether the process around it serves.

Room: http.
See: broker/watching/health.py.
"""

from __future__ import annotations

from dejaqueue.broker.watching import Health, health_of
from dejaqueue.http.service import Service


def readiness(service: Service) -> Health:
    """Whether this process should be given work, and if not, why not."""
    health = health_of(service.broker)
    if health.is_ready and not service.is_ready():
        return Health(("the servers are starting or stopping",), health.warnings)
    return health
