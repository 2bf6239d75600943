"""`dejaq top`: what a broker does, live, in a terminal; or lines of JSON for each look.

Room: cli.
Holds: the terminal is as it was when this ends, however it ends; a broker that is away is waited
for, and said to be.
See: top_view.py, which draws; console/problems.py, which knows what is wrong.
"""

from __future__ import annotations

import select
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from dejaqueue.cli import terminal
from dejaqueue.cli.connection import connect, json_option, url_option
from dejaqueue.cli.output import print_json
from dejaqueue.cli.standby import told
from dejaqueue.cli.times import Span
from dejaqueue.cli.top_view import ORDERS, Frame, TopicLine, draw, late_ms
from dejaqueue.clock import SteadyClock, SystemClock, Wake
from dejaqueue.console import problems
from dejaqueue.console.rows import Pace, pace_of, row_of
from dejaqueue.errors import DejaQError, Unavailable
from dejaqueue.topic_names import parse_subscription, subscription_name

if TYPE_CHECKING:
    from dejaqueue import Client

KEPT = 60
"""Rates of each topic that are drawn as a line."""
_SETTINGS_LOOKS = 10
"""Settings are asked for in each of so many looks."""
SUBSCRIPTIONS_MAX = 100
"""Each subscription is asked for by itself; so many are, in the order of their names."""


@click.command(
    epilog="Examples: `dejaq top` · `dejaq top --interval 5s` · `dejaq top --json --count 2`",
)
@click.option("--interval", "interval_ms", type=Span(), default="2s", show_default=True,
              help="Between two looks.")  # fmt: skip
@click.option("--count", type=click.IntRange(min=1), help="End after so many looks.")
@json_option("Print one JSON object for each topic, subscription and look, for scripts.")
@url_option
def top(*, interval_ms: int, count: int | None, as_json: bool, url: str) -> None:
    """Watch a broker: what is wrong, and the topics with most to do, with their subscriptions.

    Press q to end, b, n, s or l to sort. Without a terminal it prints JSON.
    """
    with connect(url, retry_ms_max=0) as client:
        looks = Looks(client, url)
        if as_json or not terminal.is_terminal():
            _print_looks(looks, interval_ms, count)
        else:
            _draw_looks(looks, interval_ms, count)


class Looks:
    """Frames, one after the other: what was seen, and how fast it grew since the one before."""

    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        self._url = url
        self._number = 0
        self._settings: dict[str, dict[str, Any]] = {}
        self._before: tuple[int, Mapping[str, Mapping[str, int]]] = (0, {})
        self._lines: dict[str, deque[float]] = {}
        self._newest = Frame(url, 0)

    def take(self, order: str = "busy") -> Frame:
        """The frame as of now; of a broker that is away, the last one, which says so."""
        at_ms = SystemClock().utc_ms()
        try:
            stats = self._client.stats().to_dict()
            if self._number % _SETTINGS_LOOKS == 0:
                self._settings = {one.name: one.to_dict() for one in self._client.topics()}
        except Unavailable as error:
            before = self._newest
            return Frame(self._url, at_ms, before.lines, before.found, before.silent, order,
                         said=f"the broker does not answer: {error}")  # fmt: skip
        self._number += 1
        names = self._subscriptions(stats["topics"])
        numbers_of = stats["topics"] | self._numbers_of(names[:SUBSCRIPTIONS_MAX])
        rows = {name: row_of(numbers) for name, numbers in numbers_of.items()}
        paces = {name: pace_of(numbers) for name, numbers in numbers_of.items()}
        lines = [self._line(name, row, at_ms, paces[name]) for name, row in rows.items()]
        self._before = at_ms, rows
        self._lines = {name: line for name, line in self._lines.items() if name in rows}
        standby = self._standby()
        found = problems.of_quotas(stats.get("refused_lately", []))
        consumed = {} if standby else rows  # what is wrong is so where the topics are served
        found += [
            one
            for name, row in consumed.items()
            for one in problems.of_topic(name, row, self._settings_of(name), at_ms, paces[name])
        ]  # fmt: skip
        self._newest = Frame(self._url, at_ms, lines, problems.in_order(found),
                             tuple(stats["silent"]), order, stats["uptime_ms"],
                             unasked=max(0, len(names) - SUBSCRIPTIONS_MAX),
                             standby=standby)  # fmt: skip
        return self._newest

    def _standby(self) -> str:
        """Of a standby how far it is; an older broker knows of none."""
        with suppress(DejaQError):
            found = self._client.standby()
            if found["state"] != "active":
                trouble = found.get("trouble")
                return told(found) + (f": {trouble}" if trouble else "")
        return ""

    def _subscriptions(self, topics: Mapping[str, Any]) -> list[str]:
        """Names of all that these topics have; an older broker says of none that there are any."""
        return sorted(
            subscription_name(topic, name)
            for topic in topics
            for name in self._settings.get(topic, {}).get("subscriptions") or ()
        )

    def _numbers_of(self, names: list[str]) -> dict[str, Any]:
        """Those of these subscriptions; one that has gone, or does not answer, is left out."""
        found = {}
        for name in names:
            with suppress(DejaQError):
                found[name] = self._client.stats(name).to_dict()
        return found

    def _settings_of(self, name: str) -> dict[str, Any]:
        """Of a topic, or of a subscription: its own before its topic's."""
        topic, subscription = parse_subscription(name)
        settings = self._settings.get(topic, {})
        if not subscription:
            return settings
        own: dict[str, Any] = (settings.get("subscriptions") or {}).get(subscription, {})
        kind = {"kind": own["order"]} if "order" in own else {}
        return settings | own | kind

    def _line(self, name: str, row: dict[str, int], at_ms: int, pace: Pace) -> TopicLine:
        """Of the first look, the rates are those that the broker kept."""
        before_ms, rows = self._before
        was, far_ms = rows.get(name), at_ms - before_ms
        rates = {"enqueued": pace.rate_in, "acked": pace.rate_out}
        if was is not None and far_ms > 0:
            rates = {key: max(0, row[key] - was[key]) * 1_000 / far_ms for key in rates}
        line = self._lines.setdefault(name, deque(pace.line_out, maxlen=KEPT))
        line.append(rates["acked"])
        settings = self._settings_of(name)
        return TopicLine(
            name, row, str(settings.get("kind", "")), bool(settings.get("paused")),
            rates["enqueued"], rates["acked"], tuple(line), pace.late_us,
        )  # fmt: skip


def _print_looks(looks: Looks, interval_ms: int, count: int | None) -> None:
    number = 0
    while True:
        frame = looks.take()
        if frame.said:
            raise Unavailable(frame.said)
        for one in frame.lines:
            rates = {"enqueued_per_second": one.rate_in, "acked_per_second": one.rate_out}
            late = {"lateness_p99_us": one.late_us}
            if one.is_subscription:
                row = one.row
                late |= {"lag": row["scheduled"] + row["leased"],
                         "oldest_ms": late_ms(row, frame.at_ms)}  # fmt: skip
            print_json({"at_ms": frame.at_ms, "topic": one.name} | dict(one.row) | rates | late)
        sys.stdout.flush()
        number += 1
        if number == count:
            return
        clock = SteadyClock()
        clock.wait_until(clock.now_us() + interval_ms * 1_000, Wake())


def _draw_looks(looks: Looks, interval_ms: int, count: int | None) -> None:
    from rich.console import Console
    from rich.live import Live

    console, order, number = Console(highlight=False), "busy", 0
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            frame = looks.take(order)
            wide, high = console.size
            live.update(draw(frame, wide, high), refresh=True)
            number += 1
            if number == count:
                return
            key = pressed(interval_ms / 1_000)
            if key == "q":
                return
            order = ORDERS.get(key, order)


@contextmanager
def _keys() -> Iterator[Any]:
    """A function that waits for a key so long, "" = none came; keys are not shown meanwhile."""
    if not sys.stdin.isatty() or find_spec("termios") is None:  # as on Windows
        clock = SteadyClock()

        def wait(seconds: float) -> str:
            clock.wait_until(clock.now_us() + int(seconds * 1e6), Wake())
            return ""

        yield wait
        return
    import termios
    import tty

    place = sys.stdin.fileno()
    before = termios.tcgetattr(place)
    tty.setcbreak(place)

    def read(seconds: float) -> str:
        found, _, _ = select.select([place], [], [], seconds)
        return sys.stdin.read(1) if found else ""

    try:
        yield read
    finally:
        termios.tcsetattr(place, termios.TCSADRAIN, before)
