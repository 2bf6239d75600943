"""Clients that work on a cluster while its brokers are disturbed, and what is checked then."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable

from dejaqueue import Client
from tests.crash import test_broker_kill as load
from tests.crash.history import History
from tests.patience import PATIENCE_SECONDS


def check_disturbed(
    url: str, topic: str, turns: int, disturb: Callable[[int], None], acked_min: int = 100
) -> None:
    """Clients work while brokers are disturbed; then rules 1 to 6 are checked.

    Args:
        url: of all brokers.
        turns: how often.
        disturb: what happens then, by the number of the turn.
    """
    seed = int(os.environ.get("DEJAQ_KILL_SEED", random.randrange(1 << 30)))
    random.seed(seed)
    print(f"DEJAQ_KILL_SEED={seed}")
    history, stop_producing, stop_consuming = History(), threading.Event(), threading.Event()
    with Client(url) as client:
        client.create_topic(topic, partitions=4)
    failures: list[BaseException] = []

    def run(function: Callable[..., None], *arguments: object) -> threading.Thread:
        def guarded() -> None:
            try:
                function(*arguments)
            except BaseException as error:  # noqa: BLE001 - shown at the end of the test
                failures.append(error)

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    producers = [run(load.produce, url, history, n, stop_producing, topic) for n in range(2)]
    consumers = [run(load.consume, url, history, stop_consuming, topic) for _ in range(2)]
    try:
        for turn in range(turns):
            threading.Event().wait(random.uniform(1.0, 2.0))
            disturb(turn)
    finally:
        stop_producing.set()
        for thread in producers:
            thread.join(PATIENCE_SECONDS)
        try:
            load.drain(url, topic)
        finally:
            stop_consuming.set()
            for thread in consumers:
                thread.join(PATIENCE_SECONDS)
    assert not failures, failures
    print(f"sent={len(history.sent)} got={len(history.deliveries)} acked={len(history.acked_us)}")
    assert history.faults()[:10] == []
    assert len(history.acked_us) > acked_min
