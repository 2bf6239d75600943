"""What `dejaq top` draws: what is wrong, then the topics with most to do, as far as they fit.

Room: cli. Pure functions over rows (console/rows.py); rich is imported when something is drawn.
Holds: no frame is wider or higher than the terminal; what is wrong stands above what is busy.
See: top.py, which takes the samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dejaqueue.console import problems, words
from dejaqueue.topic_names import parse_subscription

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

WIDE = 120
_PROBLEMS_ROWS = 5
"""One problem for so many rows of the terminal."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_LINE_COLUMNS = 24
ORDERS = {"b": "busy", "n": "name", "s": "scheduled", "l": "late"}
"""In which order topics stand, by the key that is pressed."""


@dataclass(frozen=True, slots=True)
class TopicLine:
    """One topic now, or a subscription of one.

    Attributes:
        name: of the topic, or `topic@subscription`.
        row: its numbers (console/rows.py).
        kind: of the topic, or the order of the subscription; "" = not known.
        paused: it hands out nothing.
        rate_in, rate_out: messages a second, lately.
        line: rates of acks of the last looks, the oldest first.
        late_us: 99 of 100 of the last five minutes were at most so late; -1 = there were none.
    """

    name: str
    row: Mapping[str, int]
    kind: str = ""
    paused: bool = False
    rate_in: float = 0.0
    rate_out: float = 0.0
    line: Sequence[float] = ()
    late_us: int = -1

    @property
    def is_subscription(self) -> bool:
        """True for what is a part of the topic above it."""
        return "@" in self.name


@dataclass(frozen=True, slots=True)
class Frame:
    """What is known at one instant.

    Attributes:
        url: of the broker.
        at_ms: by the clock here, UTC.
        lines: the topics and their subscriptions.
        found: what is wrong, the worst first.
        silent: nodes that did not answer.
        order: a value of ORDERS.
        unasked: how many more subscriptions there are, too many to ask for.
        standby: of a standby how far it is, in words; "" = the broker is active.
    """

    url: str
    at_ms: int
    lines: Sequence[TopicLine] = ()
    found: Sequence[problems.Problem] = ()
    silent: Sequence[str] = ()
    order: str = "busy"
    uptime_ms: int = 0
    said: str = field(default="")
    standby: str = ""
    unasked: int = 0


def in_order(frame: Frame) -> list[TopicLine]:
    """The lines as they are asked for: topics, each with its subscriptions behind it."""
    keys: dict[str, Any] = {
        "busy": lambda one: (-one.rate_out - one.rate_in, -one.row["ready"] - one.row["leased"]),
        "name": lambda one: (),
        "scheduled": lambda one: (-one.row["scheduled"],),
        "late": lambda one: (-late_ms(one.row, frame.at_ms),),
    }
    ordered = sorted(frame.lines, key=lambda one: (keys[frame.order](one), one.name))
    parts: dict[str, list[TopicLine]] = {}
    for one in ordered:
        if one.is_subscription:
            parts.setdefault(parse_subscription(one.name)[0], []).append(one)
    topics = [one for one in ordered if not one.is_subscription]
    return [line for one in topics for line in (one, *parts.get(one.name, ()))]


def late_ms(row: Mapping[str, int], at_ms: int) -> int:
    """By how much the first of what is due is late; 0 = nothing is due."""
    return max(0, at_ms - row["next_due_ms"]) if row["ready"] and row["next_due_ms"] >= 0 else 0


def short_count(number: float) -> str:
    """A number in at most five columns.

    >>> short_count(999), short_count(12_345), short_count(3_400_000), short_count(1.5)
    ('999', '12.3k', '3.4M', '1.5')
    """
    if 0 < number < 10 and number != int(number):
        return f"{number:.1f}"
    for unit in ("", "k", "M", "G"):
        if number < 999.5:
            digits = 0 if not unit or number >= 99.95 else 1
            return f"{number:.{digits}f}{unit}"
        number /= 1_000
    return f"{number:.0f}T"


def short_length(length_ms: int) -> str:
    """A length of time in its largest unit.

    >>> short_length(90_061_000), short_length(599_000), short_length(40)
    ('1 d', '9 min', '40 ms')
    """
    first, _, rest = words.length(length_ms).partition(" ")
    return f"{first} {rest.partition(' ')[0]}"


def spark(values: Sequence[float], columns: int) -> str:
    """Values as blocks of eight heights, the newest at the right.

    >>> spark([0, 1, 2], 5), spark([], 5)
    ('▁▅█', '')
    """
    shown = values[-columns:]
    most = max(shown, default=0) or 1
    return "".join(_BLOCKS[min(7, int(value * 7 / most + 0.5))] for value in shown)


def draw(frame: Frame, columns: int, rows: int) -> RenderableType:
    """The frame for a terminal of this size."""
    from rich.console import Group
    from rich.text import Text

    def cut(text: Text) -> Text:
        text.truncate(columns, overflow="ellipsis")
        text.no_wrap = True
        return text

    topics = [one for one in frame.lines if not one.is_subscription]
    totals = {name: sum(one.row[name] for one in topics)
              for name in ("scheduled", "ready", "leased")}  # fmt: skip
    head = Text.assemble(
        ("dejaq top ", "bold"), f"{frame.url} ", (words.absolute(frame.at_ms)[11:19], "dim"),
        f" · {len(topics)} topics · {short_count(totals['scheduled'])} scheduled · ",
        (f"{short_count(totals['ready'])} ready", "yellow" if totals["ready"] else ""),
        " · ", f"{short_count(totals['leased'])} leased",
    )  # fmt: skip
    parts = [cut(head)]
    if frame.said:
        parts.append(cut(Text(frame.said, "bold red")))
    if frame.standby:
        parts.append(cut(Text(frame.standby, "bold yellow")))
    if frame.silent:
        parts.append(cut(Text(f"no answer from {', '.join(frame.silent)}", "bold red")))
    most = max(1, rows // _PROBLEMS_ROWS)
    for one in frame.found[:most]:
        where = f"{one.topic}: " if one.topic else ""
        style = "bold red" if one.weight == 3 else "yellow"
        parts.append(cut(Text.assemble((f"{where}{one.title}. ", style), (one.remedy, "dim"))))
    if len(frame.found) > most:
        parts.append(cut(Text(f"{len(frame.found) - most} more are wrong", "yellow")))
    if not (frame.found or frame.said or frame.standby):
        parts.append(Text("nothing is late, nothing is stuck", "green"))
    keys = " ".join(f"{key}:{name}" for key, name in ORDERS.items())
    room = rows - len(parts) - 4  # the table's head and its rule, the keys, the cursor's line
    lines = in_order(frame)
    table = _table(lines[: max(0, room)], frame.at_ms, columns)
    left = len(lines) - max(0, room)
    more = f" · {left} more" if left > 0 else ""
    more += f" · {frame.unasked} subscriptions not asked for" if frame.unasked else ""
    foot = Text(f"q:quit {keys}{more}", "dim")
    return Group(*parts, table, cut(foot))


def _table(lines: Sequence[TopicLine], at_ms: int, columns: int) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    is_wide = columns >= WIDE
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, expand=True,
                  show_edge=False)  # fmt: skip
    table.add_column("topic", ratio=1, no_wrap=True, overflow="ellipsis", min_width=16)
    for name in ("in/s", "out/s", "sched", "ready", "leased"):
        table.add_column(name, justify="right", no_wrap=True, min_width=9 if is_wide else 5)
    for name, wide in (("late", 10), ("next due", 18)) if is_wide else (("late", 6), ("next", 6)):
        table.add_column(name, justify="right", no_wrap=True, min_width=wide)
    table.add_column("dead", justify="right", no_wrap=True, min_width=4)
    table.add_column("cons" if not is_wide else "consumers", justify="right", no_wrap=True)
    if is_wide:
        table.add_column("credit", justify="right", no_wrap=True, min_width=7)
        table.add_column("late, p99", justify="right", no_wrap=True, min_width=9)
        table.add_column("kind", no_wrap=True, min_width=8)
        table.add_column("out, lately", no_wrap=True, min_width=_LINE_COLUMNS)
    number, length = words.count if is_wide else short_count, short_length
    if is_wide:
        length = words.length
    for one in lines:
        row = one.row
        late = late_ms(row, at_ms)
        far_ms = row["next_due_ms"] - at_ms
        due = "-" if row["next_due_ms"] < 0 else "now" if far_ms <= 0 else length(far_ms)
        name = f"  @{one.name.partition('@')[2]}" if one.is_subscription else one.name
        cells = [
            Text(name + (" (paused)" if one.paused else ""), "yellow" if one.paused else ""),
            Text(short_count(one.rate_in)), Text(short_count(one.rate_out)),
            Text(number(row["scheduled"]), "cyan" if row["scheduled"] else "dim"),
            Text(number(row["ready"]), "yellow" if row["ready"] else "dim"),
            Text(number(row["leased"]), "green" if row["leased"] else "dim"),
            Text(length(late) if late else "-", "bold red" if late > problems.LATE_MS
                 else "dim"),
            Text(due, "dim" if late else ""),
            Text(number(row["dead"]), "red" if row["dead"] else "dim"),
            Text(number(row["consumers"])),
        ]  # fmt: skip
        if is_wide:
            cells += [
                Text(number(row["credit"])), Text(words.late(one.late_us)), Text(one.kind, "dim"),
                Text(spark(one.line, _LINE_COLUMNS), "blue"),
            ]  # fmt: skip
        table.add_row(*cells)
    return table
