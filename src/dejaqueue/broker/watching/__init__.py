"""The part of the broker's door for what looks at a broker from outside: metrics, probes.

Room: broker. Names only; each is said in its own module.
"""

from __future__ import annotations

from dejaqueue.broker.calls.look_ahead import HORIZONS
from dejaqueue.broker.counting import GAUGES
from dejaqueue.broker.topic.cluster_port import Disks
from dejaqueue.broker.watching.clocks import clock_numbers
from dejaqueue.broker.watching.findings import (
    check_backups,
    check_room,
    check_stored,
    findings_of,
)
from dejaqueue.broker.watching.health import Health, health_of
from dejaqueue.broker.watching.observation import Observer, TopicNumbers
from dejaqueue.broker.watching.subscription_numbers import SubscriptionNumbers

__all__ = [
    "GAUGES",
    "HORIZONS",
    "Disks",
    "Health",
    "Observer",
    "SubscriptionNumbers",
    "TopicNumbers",
    "check_backups",
    "check_room",
    "check_stored",
    "clock_numbers",
    "findings_of",
    "health_of",
]
