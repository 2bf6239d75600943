"""Watches: what open pages show of themselves, gathered once for all who look at the same.

Room: console. On the event loop.
Holds: a part whose values are the same as before is neither filled nor sent again; all watches
together take at most a SHARE of the time, whatever they look at; who has seen an older version gets
what changed since, in one piece.
See: streams.py, which tells open pages; overview.py and topics.py, which say what there is.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

from dejaqueue.console.api import ApiError
from dejaqueue.console.pages import fill
from dejaqueue.console.samples import PERIOD_MS

PERIOD_MS_MAX = 10_000
"""News come at least so often, whatever they cost."""
SHARE = 0.01
"""What all watches together may take of the time; those that take more look less often."""
KEPT_MAX = 200
UNSEEN_MS = 60_000
"""A watch that nobody listens to is kept for so long: its page may be on its way to a browser."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a page that changes by itself.

    Attributes:
        template: of the piece, without its ending.
        values: what it is filled with, `when` and `now_ms` aside.
    """

    template: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Live:
    """What a page shows now.

    Attributes:
        parts: by name, in the order of the page.
        frame: what stands around them.
    """

    parts: dict[str, Part]
    frame: dict[str, Any] = field(default_factory=dict)


Look: TypeAlias = Callable[[], Awaitable[Live]]
"""Asks the API for what a page shows now. Raises ApiError."""


class Watch:
    """One page, for everybody who has it open with the same key.

    Attributes:
        name: its own, which nobody guesses; a version means nothing in another watch.
        version: grows when something has changed.
        bells: of those who listen; rung when there is something new.
        seen_ms: when somebody last looked.
    """

    def __init__(self) -> None:
        self.name = secrets.token_urlsafe(9)
        self.version = 0
        self.bells: set[asyncio.Event] = set()
        self.seen_ms = 0
        self._shape_version = 0
        self._parts: dict[str, Part] = {}
        self._shown: dict[str, tuple[int, str]] = {}

    def take(self, parts: dict[str, Part], now_ms: int) -> None:
        """Fill what has changed, and tell those who listen."""
        version, shown = self.version + 1, {}
        for name, part in parts.items():
            if self._parts.get(name) == part:
                shown[name] = self._shown[name]
            else:
                values = part.values | {"part": name}
                shown[name] = version, fill(f"parts/{part.template}", now_ms, values)
        if list(parts) != list(self._parts):
            self._shape_version = version
        elif all(since < version for since, _ in shown.values()):
            return
        self.version, self._parts, self._shown = version, parts, shown
        self.ring()

    def end(self) -> None:
        """Have all pages load again: this is not for them any more."""
        self.version += 1
        self._shape_version = self.version
        self.ring()

    def ring(self) -> None:
        """Wake those who listen."""
        for bell in self.bells:
            bell.set()

    @property
    def texts(self) -> dict[str, str]:
        """The parts as HTML, by name."""
        return {name: text for name, (_, text) in self._shown.items()}

    def news(self, seen: int, now_ms: int) -> str:
        """What changed after a version, as an event; "" = nothing.

        Other parts than before are an event `again`: the page has to be put together anew.
        """
        if seen >= self.version:
            return ""
        if seen < self._shape_version:
            return "event: again\ndata: \n\n"
        changed = {name: text for name, (since, text) in self._shown.items() if since > seen}
        told = orjson.dumps({"now": now_ms, "parts": changed}).decode()
        return f"event: parts\ndata: {told}\n\n"


class Watches:
    """All of them.

    Args:
        now_ms: the broker's time, UTC milliseconds.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self._watches: dict[tuple[str, ...], Watch] = {}
        self._tasks: dict[Watch, asyncio.Task[None]] = {}
        self._end = asyncio.Event()

    def of(self, about: tuple[str, ...]) -> Watch:
        """The watch of a page and a viewer."""
        now_ms = self.now_ms()
        watch = self._watches.get(about)
        if watch is None:
            self._forget(now_ms)
            watch = self._watches[about] = Watch()
        watch.seen_ms = now_ms
        return watch

    def listen(self, watch: Watch, bell: asyncio.Event, look: Look) -> None:
        """Ring the bell whenever there is something new, until it is left."""
        watch.bells.add(bell)
        if watch not in self._tasks:
            task = asyncio.ensure_future(self._go_on(watch, look))
            self._tasks[watch] = task
            task.add_done_callback(lambda _: self._tasks.pop(watch, None))

    def leave(self, watch: Watch, bell: asyncio.Event) -> None:
        """Ring it no more; nobody's watch looks no more."""
        watch.bells.discard(bell)
        watch.seen_ms = self.now_ms()
        if not watch.bells and watch in self._tasks:
            self._tasks.pop(watch).cancel()

    def close(self) -> None:
        """End all of it."""
        self._end.set()
        for task in self._tasks.values():
            task.cancel()

    async def _go_on(self, watch: Watch, look: Look) -> None:
        loop, took_ms = asyncio.get_running_loop(), 0.0
        while not await is_rung(self._end, pause_ms(took_ms, len(self._tasks)) / 1_000):
            started = loop.time()
            try:
                watch.take((await look()).parts, self.now_ms())
            except ApiError as error:
                if error.status in (401, 403, 404):
                    watch.end()
            took_ms = (loop.time() - started) * 1_000

    def _forget(self, now_ms: int) -> None:
        over = [
            about
            for about, watch in self._watches.items()
            if not watch.bells and not 0 <= now_ms - watch.seen_ms < UNSEEN_MS
        ]
        idle = [about for about, watch in self._watches.items() if not watch.bells]
        for about in over or idle[: max(0, len(self._watches) + 1 - KEPT_MAX)]:
            del self._watches[about]


async def is_rung(bell: asyncio.Event, seconds: float) -> bool:
    """True as soon as a bell is rung; False after so long."""
    try:
        async with asyncio.timeout(seconds):
            await bell.wait()
    except TimeoutError:
        return False
    return True


def pause_ms(took_ms: float, watch_count: int) -> float:
    """How long to wait before looking again, so that all watches together take their SHARE.

    >>> pause_ms(1.0, 1), pause_ms(30.0, 1), pause_ms(30.0, 10)
    (2000, 3000.0, 10000)
    """
    return min(PERIOD_MS_MAX, max(PERIOD_MS, took_ms * watch_count / SHARE))


__all__ = ["Live", "Look", "Part", "Watch", "Watches", "is_rung", "pause_ms"]
