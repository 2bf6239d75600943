"""Python's garbage collector, while a great many objects are made that stay.

Room: broker.
Holds: it is on again afterwards, if it was before; several threads may do it at once.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_off() -> Iterator[None]:
    """Have the collector wait.

    It looks after every 700 new objects, and each time that a quarter is new, at all there are: of
    5,000 partitions that took four fifths of the time in which they were made.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
