"""How long tests wait for what must come in the end, and how they wait for it.

A bound on "this will come" costs nothing when all is right, so there is one, and it is generous: a
machine with other work may take a minute for what takes a moment elsewhere. Whoever promises
milliseconds or seconds has a number of their own and the mark `timing`, or counts virtual time.

See: README.md; `timeout` in pyproject.toml, which must be longer than this.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENCE_SECONDS = 180
LOOK_SECONDS = 0.02


def until(is_so: Callable[[], object], what: str = "", seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for something that others bring about, without a bell to ring here.

    Args:
        what: should be so, for whoever reads that it is not.
    """
    end, pause = time.monotonic() + seconds, threading.Event()
    while not is_so():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what or is_so}"
        pause.wait(LOOK_SECONDS)
