"""How long it takes until a standby has taken its broker's place.

A broker that archives as it comes, with as many messages as the plan has; a standby that follows
the archive on the same machine, in a directory of its own. The broker is killed, the standby
promoted. `promotion` is from the request to the first message that the new broker has accepted and
made durable.
See: questions/bytes.py; docs/guides/standby.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.load import HOUR_MS, far_load
from bench.percentiles import spread
from bench.results import Row
from bench.systems.dejaq import DejaqSystem
from bench.systems.servers import new_folder
from bench.systems.system import Plan
from dejaqueue.errors import TopicUnknown

INTERVAL_MS = 50
FOLLOWS_SECONDS_MAX = 120.0
CASE = "promotion"


def promotion_rows(question: str, plan: Plan, report: Callable[[str], None]) -> list[Row]:
    """The row of a promotion."""
    took: list[float] = []
    for number in range(1, plan.rounds + 1):
        took.append(_promoted(plan, number))
        report(f"round {number}: {CASE}: {took[-1]:.2f} s")
    return [Row(question, "dejaq", CASE, round(spread(took)["median"], 2), "s", None, None)]


def _promoted(plan: Plan, seed: int) -> float:
    """Seconds from the request to the first message of the new broker."""
    archive = new_folder(plan.folder, "promotion")
    settings = (f"backup.url={archive}", f"backup.archive_interval_ms={INTERVAL_MS}")
    first = DejaqSystem(settings=(*settings, "backup.interval_ms=86400000"))
    standby = DejaqSystem(settings=(f"standby.url={archive}", *settings))
    first.start(plan.folder)
    try:
        topic = first.new_topic()
        sent = first.fill(topic, far_load(plan.rows, first.clock.now_ms(), seed), plan.seconds)
        # There is nothing to follow before the first backup.
        _wait(lambda: first.client.backup_progress()["state"] == "done")
        standby.start(plan.folder)
        try:
            _wait(lambda: standby.count_live(topic) == sent.rows)
            first.crash()
            began = time.perf_counter()
            standby.client.promote()
            standby.client.send(topic, b"the first", due=standby.clock.now_ms() + HOUR_MS)
            seconds = time.perf_counter() - began
            standby.check_left(topic, sent.rows + 1)
            return seconds
        finally:
            standby.stop()
    finally:
        first.stop()


def _wait(is_there: Callable[[], bool]) -> None:
    """Until the archive has a beginning, or the standby has what its broker has. Raises
    AssertionError."""
    until = time.monotonic() + FOLLOWS_SECONDS_MAX
    while time.monotonic() < until:
        try:
            if is_there():
                return
        except TopicUnknown:
            pass  # the topic is not there yet
        time.sleep(0.05)
    raise AssertionError("there is no archive, or the standby does not follow it")
