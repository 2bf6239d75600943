"""Changes of all messages in a stretch of time: counted first, then done piece by piece.

Room: console. Each piece is a request of the API.
Holds: a change begins only after its preview: more than TYPED_FROM messages are confirmed by typing
their number as it was shown, and a number that has grown since by a tenth is shown again; nothing
that is leased is changed.
See: works.py, which runs the pieces; docs/reference/semantics.md, rule 9.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from dejaqueue.console.api import Api, ApiError, topic_path
from dejaqueue.console.visit import Visit
from dejaqueue.console.works import Work
from dejaqueue.digits import number_of

TYPED_FROM = 1_000
FILTERS = ("state", "group", "tags_any", "tags_all", "tags_none", "due_from", "due_to")
_LISTS = ("tags_any", "tags_all", "tags_none")


@dataclass(frozen=True, slots=True)
class Choice:
    """Which messages, and what becomes of them.

    Attributes:
        where: the filter, as the API takes it.
        verb: cancel, shift or spread.
        by_ms: of a shift: so much later; negative: earlier.
        to_from_ms, to_end_ms: of a spread: where they go, evenly.
    """

    topic: str
    where: dict[str, Any]
    verb: str
    by_ms: int = 0
    to_from_ms: int = 0
    to_end_ms: int = 0


def where_of(fields: dict[str, str]) -> dict[str, Any]:
    """The filter in the fields of a form or an address; tags are parted by commas.

    >>> where_of({"group": "vip", "due_from": "5", "tags_any": "a, b", "state": ""})
    {'group': 'vip', 'tags_any': ['a', 'b'], 'due_from': 5}
    """
    where: dict[str, Any] = {}
    for name in FILTERS:
        text = fields.get(name, "").strip()
        if not text:
            continue
        if name in _LISTS:
            where[name] = [tag.strip() for tag in text.split(",") if tag.strip()]
        elif name.startswith("due_"):
            number = number_of(text.removeprefix("-"))
            where[name] = text if number is None else -number if text[0] == "-" else number
        else:
            where[name] = text
    return where


async def count_of(api: Api, topic: str, where: dict[str, Any]) -> int:
    """How many messages a filter means, of those that can be changed. Raises ApiError."""
    body = {"where": where, "dry_run": True}
    return int((await api.post(topic_path(topic, "cancel"), body))["count"])


def check_confirmed(count: int, shown: int, typed: str) -> None:
    """Raise ApiError unless so many messages may be changed.

    Args:
        count: how many there are now.
        shown: how many the preview had.
        typed: what the viewer has typed to confirm.
    """
    if count > shown + max(10, shown // 10):
        raise ApiError(409, f"there are {count:,} messages now, not {shown:,}: look again")
    digits = typed.replace(",", "").replace(" ", "").strip()
    if shown > TYPED_FROM and digits != str(shown):
        raise ApiError(400, f"type {shown} to confirm; nothing was changed")


async def begin(visit: Visit, choice: Choice, shown: int, typed: str) -> Work:
    """Have it done. Raises ApiError: not confirmed, not allowed, or too many."""
    count = await count_of(visit.api, choice.topic, choice.where)
    check_confirmed(count, shown, typed)
    titles = {
        "cancel": f"Cancel messages of {choice.topic}",
        "shift": f"Move messages of {choice.topic}",
        "spread": f"Spread messages of {choice.topic}",
    }
    work = Work(
        titles[choice.verb], visit.session.name, visit.peer, f"console {choice.verb}",
        choice.topic, count,
    )  # fmt: skip
    return visit.works.begin(work, _by_filter(visit.api, choice))


async def _by_filter(api: Api, choice: Choice) -> AsyncIterator[int]:
    body: dict[str, Any] = {"where": choice.where}
    if choice.verb == "shift":
        body["by_ms"] = choice.by_ms
    elif choice.verb == "spread":
        body |= {"window_from": choice.to_from_ms, "window_to": choice.to_end_ms}
    path = topic_path(choice.topic, "cancel" if choice.verb == "cancel" else "move")
    while True:
        answer = await api.post(path, body)
        yield int(answer["count"])
        if answer["next"] is None:
            return
        body["after"] = answer["next"]
