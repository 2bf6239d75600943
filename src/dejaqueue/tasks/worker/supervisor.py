"""The supervisor: starts worker processes, replaces those that end, gives back what they left.

Room: tasks.worker. Runs no task; loads the application for its client and its topics alone.
Holds: what a process that died had at work is given back with the reason, at once and not when its
leases end; each end of a process has its replacement, unless all are to stop; nothing is killed
before its grace is over, but for a second signal and for a hard time limit.
See: board.py; worker_process.py; cli/worker.py.
"""

from __future__ import annotations

import logging
import shutil
import signal
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

from dejaqueue.errors import DejaQError
from dejaqueue.tasks.app import Tasks
from dejaqueue.tasks.results import Outcome, TaskFailed
from dejaqueue.tasks.worker.board import AtWork, Board, Tally, now_us
from dejaqueue.tasks.worker.task_board import TaskTally, total_of
from dejaqueue.tasks.worker.worker_process import ProcessOptions

log = logging.getLogger("dejaqueue.tasks")

LOOK_SECONDS = 0.1
"""Between two looks at processes and boards; a process that ends is noticed so late."""
YOUNG_US = 5_000_000
"""A process that ends before this age is replaced after a pause, longer each time."""
PAUSE_US_MAX = 30_000_000
_OVER_TIME = "a task was over its hard time limit"


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How a worker is run.

    Attributes:
        child: what each process is told, but for its board.
        processes: how many there are.
        grace_s: how long what is at work may take when the worker stops.
        tasks_max: a process is replaced after so many tasks; 0 = never.
        memory_bytes_max: a process is replaced when it has more memory; 0 = never.
    """

    child: ProcessOptions
    processes: int = 1
    grace_s: float = 30.0
    tasks_max: int = 0
    memory_bytes_max: int = 0


class _Child:
    """One worker process and its board."""

    def __init__(self, number: int, options: ProcessOptions, folder: Path) -> None:
        self.number = number
        self._path = folder / f"board-{number}"
        self.board = Board(self._path, options.concurrency)
        self.began_us = now_us()
        self.is_retired = False
        self.kill_us: int | None = None
        self.killed_for = ""
        command = replace(options, board=str(self._path)).command()
        # A session of its own: a terminal's Ctrl-C is the supervisor's to hear.
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def retire(self, grace_s: float) -> None:
        """Have it finish what is at work, within its grace; again is fine."""
        if not self.is_retired:
            self.is_retired = True
            self.kill_us = now_us() + int(grace_s * 1e6)
            self.popen.send_signal(signal.SIGTERM)

    def kill(self, why: str) -> None:
        """End it now."""
        if not self.killed_for:
            self.killed_for = why
            self.popen.kill()

    def close(self) -> None:
        """It has ended."""
        assert self.popen.stdin is not None
        self.popen.stdin.close()
        self.board.close()
        for path in (self._path, self.board.tasks.path):
            path.unlink(missing_ok=True)


class Supervisor:
    """Looks after the processes of one worker.

    Attributes:
        replaced: processes that were replaced so far.
    """

    def __init__(self, app: Tasks, options: WorkerOptions) -> None:
        self._app, self._options = app, options
        self._folder = Path(tempfile.mkdtemp(prefix="dejaq-worker-"))
        self._processes: list[_Child] = []
        self._numbers = 0
        self._wake = threading.Event()
        self._stops = 0
        self._reloads = False
        self._pause_us = 0
        self._not_before_us = 0
        self._past = Tally()
        self._past_tasks: dict[str, TaskTally] = {}
        self._lost: Counter[str] = Counter()
        self.replaced = 0

    # --- what others say -----------------------------------------------------------------------

    def stop(self) -> None:
        """Finish what is at work and end; again: give back what is at work, now. From any thread,
        and from a signal's handler."""
        self._stops += 1
        self._wake.set()

    def reload(self) -> None:
        """Replace all processes, as the program has changed; each finishes what it has at work."""
        self._reloads = True
        self._wake.set()

    @property
    def is_ready(self) -> bool:
        """True if all processes take tasks."""
        current = [one for one in self._processes if not one.is_retired]
        ready = all(one.board.is_ready for one in current)
        return ready and len(current) == self._options.processes and not self._stops

    def tally(self) -> Tally:
        """What all processes have done, those that have ended, too."""
        return sum((one.board.tally() for one in list(self._processes)), self._past)

    def task_tallies(self) -> dict[str, TaskTally]:
        """The same by task."""
        boards = [one.board.tasks.tallies() for one in list(self._processes)]
        return reduce(total_of, boards, self._past_tasks)

    @property
    def lost(self) -> dict[str, int]:
        """Attempts whose process died, by task."""
        return dict(self._lost)

    # --- the life ------------------------------------------------------------------------------

    def run(self, beside: Callable[[], None] | None = None) -> int:
        """Look after the processes until `stop`, and all have ended; the exit status.

        Args:
            beside: called at each look.
        """
        sweeper = threading.Thread(target=self._sweep, name="dejaq-results", daemon=True)
        try:
            self._app.create_all()
            sweeper.start()
            while self._look():
                if beside is not None:
                    beside()
                self._wake.wait(LOOK_SECONDS)
                self._wake.clear()
        finally:
            for child in self._processes:
                child.kill("the supervisor has failed")
                child.popen.wait()
            self._app.client.drain()
            if sweeper.ident is not None:
                sweeper.join(5)
            self._app.close()
            shutil.rmtree(self._folder, ignore_errors=True)
        return 0

    def _sweep(self) -> None:
        try:
            self._app.results.sweep(self._app.client)
        except DejaQError as error:
            log.warning("results whose life is over stay for now: %s", error)

    def _look(self) -> bool:
        """One look at everything; False when all is over."""
        for child in list(self._processes):
            if child.popen.poll() is not None:
                self._bury(child)
        if self._stops or self._reloads:
            self._reloads = False
            for child in self._processes:
                child.retire(self._options.grace_s)
        for child in self._processes:
            self._judge(child)
        if self._stops:
            return bool(self._processes)
        self._fill()
        return True

    def _fill(self) -> None:
        if now_us() < self._not_before_us:
            return
        alive = sum(1 for one in self._processes if not one.is_retired)
        for _ in range(self._options.processes - alive):
            self._numbers += 1
            self._processes.append(_Child(self._numbers, self._options.child, self._folder))

    def _judge(self, child: _Child) -> None:
        """Whether it has to end, and how soon."""
        options, tally = self._options, child.board.tally()
        overdue = [a for a in child.board.at_work() if a.end_us and a.end_us < now_us()]
        if overdue:
            child.kill(_OVER_TIME)
        elif self._stops > 1:
            child.kill("the worker was stopped at once")
        elif child.kill_us is not None and now_us() > child.kill_us:
            child.kill("the worker stopped, and its grace was over")
        elif child.is_retired:
            return
        elif options.tasks_max and tally.done + tally.retried + tally.dead >= options.tasks_max:
            log.info("process %d has done %d tasks: replaced", child.number, tally.done)
            child.retire(options.grace_s)
        elif options.memory_bytes_max and tally.rss_bytes > options.memory_bytes_max:
            megabytes = tally.rss_bytes >> 20
            log.info("process %d has %d MB of memory: replaced", child.number, megabytes)
            child.retire(options.grace_s)

    def _bury(self, child: _Child) -> None:
        """It has ended: give back what it left, and know when to start another one."""
        self._processes.remove(child)
        status, left = child.popen.returncode, child.board.at_work()
        died = status != 0 or bool(left)
        if not child.is_retired or died:
            level = logging.WARNING if died else logging.INFO
            log.log(level, "process %d %s", child.number, _ended(status, child.killed_for))
        self._past += replace(child.board.tally(), at_work=0, rss_bytes=0)
        self._past_tasks = total_of(self._past_tasks, child.board.tasks.tallies())
        if left:
            self._give_back(child, left)
        child.close()
        if self._stops:
            return
        self.replaced += 1
        if now_us() - child.began_us < YOUNG_US and died and not child.killed_for:
            self._pause_us = min(max(2 * self._pause_us, 500_000), PAUSE_US_MAX)
            self._not_before_us = now_us() + self._pause_us
        else:
            self._pause_us = 0

    def _give_back(self, child: _Child, left: list[AtWork]) -> None:
        """Nack what was at work; each says in its reason what happened to it."""
        now = now_us()
        for attempt in left:
            end = self._end_of(child, attempt, now)
            self._lost[attempt.task] += 1
            try:
                self._keep_failure(attempt, end)
                settled = self._app.client.nack(
                    attempt.topic,
                    ids=[attempt.id],
                    attempts=[attempt.attempt],
                    delay=None if end.is_dead else end.delay_ms / 1_000,
                    reason=end.reason,
                    dead=end.is_dead,
                )
                said = "settled before"
                if settled.ok:
                    said = "it is dead" if end.is_dead else "given back"
            except DejaQError as error:
                said = f"it comes again when its lease ends ({error})"
            log.warning(
                "message %d of %s, attempt %d: %s; %s",
                *(attempt.id, attempt.topic, attempt.attempt, end.reason, said),
                extra={"message_id": attempt.id, "attempt": attempt.attempt},
            )

    def _end_of(self, child: _Child, attempt: AtWork, now: int) -> _End:
        """Why this attempt ended with its child, and what becomes of it."""
        who = f"worker process {child.popen.pid}"
        if attempt.end_us and attempt.end_us < now and child.killed_for == _OVER_TIME:
            seconds = (attempt.end_us - attempt.began_us) / 1e6
            reason = f"TimeLimitExceeded: {who} was killed: the hard limit is {seconds:g} s"
            return _End(reason, attempt.delay_ms < 0, max(attempt.delay_ms, 0))
        why = _ended(child.popen.returncode, child.killed_for)
        if child.killed_for == _OVER_TIME:
            why = "was killed: another task in it was over its hard time limit"
        is_own_fault = not child.killed_for
        return _End(f"WorkerLost: {who} {why}", attempt.is_lost and is_own_fault)

    def _keep_failure(self, attempt: AtWork, end: _End) -> None:
        """Of a call that is dead now, and whose result somebody may wait for."""
        if end.is_dead and attempt.life_ms:
            kind, _, text = end.reason.partition(": ")
            outcome = Outcome(failure=TaskFailed(kind, text))
            life_s = attempt.life_ms / 1_000
            self._app.results.put(self._app.client, attempt.topic, attempt.id, outcome, life_s)


@dataclass(frozen=True, slots=True)
class _End:
    """What becomes of an attempt that ended with its child."""

    reason: str
    is_dead: bool
    delay_ms: int = 0


def _ended(status: int, why: str = "") -> str:
    """How a process ended, in words."""
    if why:
        return f"was killed: {why}"
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"was killed by {name}"
    return f"ended with status {status}"
