"""The columns of history hold together with the kinds of changes and with its files."""

from __future__ import annotations

import pytest

from dejaqueue.model import ChangeKind
from dejaqueue.schema.history import CHANGE_NAMES, HISTORY, STORED


@pytest.mark.parametrize("kind", list(ChangeKind))
def test_the_number_of_a_change_finds_its_name(kind: ChangeKind) -> None:
    assert CHANGE_NAMES[kind] == kind.name.lower()


def test_an_answer_says_what_the_path_of_a_file_says_and_then_its_columns() -> None:
    assert HISTORY.names == ["topic", "partition", *STORED.names]
    assert [HISTORY.field(name) for name in STORED.names] == list(STORED)


def test_only_what_every_change_has_is_never_null() -> None:
    always = {field.name for field in STORED if not field.nullable}
    assert always == {"change", "at_ms", "id", "sequence", "position", "priority", "attempt"}
