"""The name of a topic that was meant, for who named one that is not there.

Room: access. Every door asks it before it tells TopicUnknown: Flight, HTTP, the express lane, and a
program with the broker in it.
Holds: a name is told only to who may see its topic; what it costs is bounded, however many topics
there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from dejaqueue.errors import DejaQError, TopicUnknown
from dejaqueue.model import Topic
from dejaqueue.topic_names import subscription_name

COMPARED_MAX = 500
"""So many names are compared: some milliseconds, on a thread or a loop that others wait for."""

Topics = Callable[[], Iterable[Topic]]
Sees = Callable[[str], bool]
"""Principal.sees."""


def everybody_sees(_topic: str) -> bool:
    """Of a broker in the own program, which asks for no key."""
    return True


def with_near_name(error: DejaQError, topics: Topics, sees: Sees) -> DejaQError:
    """The error; if a topic is unknown and the name of another is near, one that tells it.

    Args:
        topics: all there are; may raise that the broker does not run.
        sees: whether whoever is told may know of a topic.
    """
    if type(error) is not TopicUnknown or "did you mean" in error.limit:
        return error
    name = str(error.value)
    try:
        known = topics()
    except DejaQError:
        return error
    near = _nearest(name, _seen(name, known, sees))
    return TopicUnknown(name, near) if near else error


class telling_near_names:  # noqa: N801 - reads as words: with telling_near_names(...)
    """A `with` block that raises TopicUnknown as `with_near_name` tells it."""

    def __init__(self, topics: Topics, sees: Sees) -> None:
        self._topics, self._sees = topics, sees

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TopicUnknown):
            told = with_near_name(error, self._topics, self._sees)
            if told is not error:
                raise told from None


def _seen(name: str, topics: Iterable[Topic], sees: Sees) -> Iterator[str]:
    """Names of about this length that may be told, those with its first letter before others."""
    fitting = [
        (known, topic.name)
        for topic in topics
        for known in _names_of(topic, with_subscriptions="@" in name)
        if 2 * min(len(known), len(name)) >= max(len(known), len(name)) and known != name
    ]
    fitting.sort(key=lambda pair: pair[0][:1] != name[:1])
    return islice((known for known, topic in fitting if sees(topic)), COMPARED_MAX)


def _names_of(topic: Topic, *, with_subscriptions: bool) -> Iterator[str]:
    yield topic.name
    if with_subscriptions:
        for subscription in topic.subscriptions:
            yield subscription_name(topic.name, subscription)


def _nearest(name: str, names: Iterator[str]) -> str:
    from difflib import get_close_matches  # here, as few programs ever need it

    return next(iter(get_close_matches(name, names, 1)), "")
