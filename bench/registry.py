"""Which systems there are, in the order of their turns, and which of them can be measured here.

Room: bench. A peer whose server or client is missing is left out, by name and with the reason.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from bench.systems.system import System


@dataclass(frozen=True, slots=True)
class Entry:
    """A system that may be measured.

    Attributes:
        name: of its rows.
        module, class_name: where it is.
        program: the server that must be installed; "" = comes with DejaQ.
    """

    name: str
    module: str
    class_name: str
    program: str


ENTRIES = (
    Entry("dejaq", "bench.systems.dejaq", "DejaqSystem", ""),
    Entry("redis", "bench.systems.redis", "RedisSystem", "redis-server"),
    Entry("beanstalkd", "bench.systems.beanstalkd", "BeanstalkdSystem", "beanstalkd"),
    Entry("beanstalkd", "bench.systems.beanstalkd", "BeanstalkdDefault", "beanstalkd"),
)
NAMES = tuple(dict.fromkeys(entry.name for entry in ENTRIES))


def available(names: tuple[str, ...]) -> tuple[list[type[System]], list[str]]:
    """The systems of these names that can be measured here, and why others cannot."""
    found: list[type[System]] = []
    left_out: list[str] = []
    for entry in ENTRIES:
        if entry.name not in names:
            continue
        try:
            kind = getattr(importlib.import_module(entry.module), entry.class_name)
        except ModuleNotFoundError as error:
            left_out.append(f"{entry.name}: the Python package {error.name} is not installed")
            continue
        if kind.version() is None:
            left_out.append(f"{entry.name}: the program {entry.program} is not installed")
            continue
        found.append(kind)
    return found, list(dict.fromkeys(left_out))
