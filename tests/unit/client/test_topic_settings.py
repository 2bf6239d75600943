"""The typed settings are those of a topic: names and types.

Not covered: that a type checker finds a wrong name (tests/types).
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args, get_type_hints

from dejaqueue.client.topic_settings import LiveSettings, TopicSettings
from dejaqueue.model import CHANGEABLE, Topic


def test_the_names_are_those_of_a_topic() -> None:
    assert set(TopicSettings.__annotations__) == {one.name for one in fields(Topic)} - {"name"}
    assert set(LiveSettings.__annotations__) == set(CHANGEABLE)


def test_each_takes_what_a_topic_has() -> None:
    of_topic: dict[str, Any] = get_type_hints(Topic)
    for name, hint in get_type_hints(TopicSettings).items():
        assert of_topic[name] in (hint, *get_args(hint)), name


def test_the_words_are_those_of_the_choices() -> None:
    hints = get_type_hints(TopicSettings)
    for name in ("kind", "on_duplicate", "assignment"):
        choices, words = get_args(hints[name])
        assert list(get_args(words)) == [str(choice) for choice in choices], name
