"""The part of the broker's door for what looks at a broker from outside: metrics, probes.

Room: broker. Names only; each is said in its own module.
"""

from __future__ import annotations

from dejaqueue.broker.counting import GAUGES
from dejaqueue.broker.health import Health, health_of
from dejaqueue.broker.observation import HORIZONS, Observer, TopicNumbers
from dejaqueue.broker.shared import Disks
from dejaqueue.broker.timekeeping import clock_numbers

__all__ = [
    "GAUGES",
    "HORIZONS",
    "Disks",
    "Health",
    "Observer",
    "TopicNumbers",
    "clock_numbers",
    "health_of",
]
