"""Settings as fields: what is shown is what was typed."""

from __future__ import annotations

import pytest

from dejaqueue.console.api import ApiError
from dejaqueue.console.setting_fields import FIELDS, parsed, shown
from dejaqueue.model import Topic
from dejaqueue.setting_words import topic_texts


def test_every_field_comes_back_as_it_was__and_has_a_text() -> None:
    settings = Topic("t", weights={"a": 1, "b=c": 2}).to_dict()
    for name in FIELDS:
        assert parsed(name, shown(settings[name]), settings[name]) == settings[name]
        assert topic_texts()[name]


@pytest.mark.parametrize(
    ("text", "before"), [("x", 1), ("1.5", 1), ("yes", False), ("a", 0.5), ("vip", {}), ("a=b", {})]
)
def test_another_type_is_refused(text: str, before: object) -> None:
    with pytest.raises(ApiError, match="a value like"):
        parsed("field", text, before)
