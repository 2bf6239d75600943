"""Which messages are meant: what a filter says of them, as values.

Room: engine; pure. Knows no state: what fits is found by selection.py.
Holds: from_values(to_values()) is the same; a command that has a filter means the same ones on each
    replay, as its times are in it.
See: selection.py for walks; replay.py for a seek that is about some messages alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from dejaqueue import limits
from dejaqueue.model import MessageState, TagFilter

DUE_END_MS = limits.INSTANT_MS_MAX + 1


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages: all that is said holds of them.

    Attributes:
        states: in one of these states.
        due_from_ms, due_to_ms: due (or leased until) at the first or later, before the second.
        group: of exactly this group, "" = of none; None = of any.
        tags: with such tags; None = any.
        priority_from, priority_to: of a priority between the two, both included.
        sender: sent by this one; None = by anybody.
    """

    states: tuple[MessageState, ...] = (MessageState.SCHEDULED,)
    due_from_ms: int = 0
    due_to_ms: int = DUE_END_MS
    group: str | None = None
    tags: TagFilter | None = None
    priority_from: int = 0
    priority_to: int = limits.PRIORITY_MAX
    sender: str | None = None

    @property
    def is_plain(self) -> bool:
        """True if states and due times alone decide."""
        every = self.priority_from <= 0 and self.priority_to >= limits.PRIORITY_MAX
        return self.group is None and self.tags is None and self.sender is None and every

    def to_values(self) -> dict[str, Any]:
        """What it says beyond the states, for JSON.

        >>> Selection(group="acme").to_values()
        {'group': 'acme'}
        """
        usual, values = asdict(Selection()), asdict(self)
        return {
            name: value
            for name, value in values.items()
            if name != "states" and value != usual[name]
        }

    @staticmethod
    def from_values(values: dict[str, Any]) -> Selection:
        """What `to_values` gave. Raises TypeError."""
        selection = Selection(**{name: values[name] for name in values if name != "tags"})
        tags = values.get("tags")
        if tags is None:
            return selection
        wanted = TagFilter(**{name: tuple(words) for name, words in tags.items()})
        return replace(selection, tags=wanted)
