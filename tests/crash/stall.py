"""Who waits for whom, when nothing moves any more: stacks of all threads, here and in brokers."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from tests.crash.broker_process import BrokerProcess

STALL_SECONDS = 120.0
"""A load that does nothing for so long is stuck, on a busy machine, too: waits of a client are much
shorter."""
_LOOK_SECONDS = 1.0


@contextlib.contextmanager
def watched(
    progress: Callable[[], int],
    *brokers: BrokerProcess,
    seconds: float = STALL_SECONDS,
    excused: Callable[[], bool] = lambda: False,
) -> Iterator[list[str]]:
    """Yields what is told: a line for each time that `progress` stood still for so long.

    Args:
        excused: nothing can move now: a server is being started, which takes as long as it takes.
    """
    told: list[str] = []
    ended = threading.Event()

    def watch() -> None:
        last, since = progress(), 0.0
        while not ended.wait(_LOOK_SECONDS):
            now = progress()
            moves = now != last or excused() or not all(broker.is_up for broker in brokers)
            since = 0.0 if moves else since + _LOOK_SECONDS
            last = now
            if since >= seconds:
                told.append(f"nothing moved for {since:.0f} s")
                print(told[-1], "— clients:", file=sys.stderr, flush=True)
                faulthandler.dump_traceback(file=sys.stderr)
                for broker in brokers:
                    _dump(broker)
                since = 0.0

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield told
    finally:
        ended.set()
        watcher.join()


def _dump(broker: BrokerProcess) -> None:
    """A broker writes its stacks into its log (broker_process.py), whose end is printed."""
    with contextlib.suppress(AssertionError, ProcessLookupError):
        os.kill(broker.pid, signal.SIGUSR1)
        threading.Event().wait(0.5)
        print(f"broker at {broker.url}:\n{broker.log_text()[-20_000:]}", file=sys.stderr)
