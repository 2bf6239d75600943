"""Settings as fields: what is shown is what was typed."""

from __future__ import annotations

import pytest

from dejaqueue.console.api import ApiError
from dejaqueue.console.setting_fields import FIELDS, parsed, shown, values_of
from dejaqueue.model import Topic, topic_texts


def test_every_field_comes_back_as_it_was__and_has_a_text() -> None:
    labels = {"a=b": "c=d", "e": '"'}
    for topic in (Topic("t", weights={"a": 1, "b=c": 2}, labels=labels), Topic("t")):
        values = values_of(topic.to_dict())
        assert tuple(values) == FIELDS
        for name, value in values.items():
            assert parsed(name, shown(name, value), value) == value
            assert topic_texts()[name]


@pytest.mark.parametrize("text", ["[]", "a=b", "1"])
def test_labels_are_an_object(text: str) -> None:
    with pytest.raises(ApiError, match="a value like"):
        parsed("labels", text, {})


@pytest.mark.parametrize(
    ("text", "before"), [("x", 1), ("1.5", 1), ("yes", False), ("a", 0.5), ("vip", {}), ("a=b", {})]
)
def test_another_type_is_refused(text: str, before: object) -> None:
    with pytest.raises(ApiError, match="a value like"):
        parsed("field", text, before)
