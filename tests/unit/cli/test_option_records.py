"""Options of a command come as records, and what belongs to no record as it was given.

The command that has them: test_send.py.
"""

from __future__ import annotations

import pytest

from dejaqueue.cli.option_records import ColumnOptions, MessageOptions, with_records

FIELDS = {
    "key": "alice",
    "due_ms": 5,
    "delay_ms": None,
    "priority": 0,
    "expires_ms": None,
    "ttl_ms": 7,
}
COLUMNS = dict.fromkeys(
    ("payload_column", "due_column", "delay_column", "key_column", "group_column")
)


@with_records(fields=MessageOptions, names=ColumnOptions)
def command(*, topic: str, fields: MessageOptions, names: ColumnOptions) -> object:
    """What it does."""
    return topic, fields, names


def test_options_become_records_and_the_others_stay() -> None:
    assert command(topic="t", **FIELDS, **COLUMNS | {"key_column": "email"}) == (
        "t",
        MessageOptions("alice", 5, None, 0, None, 7),
        ColumnOptions(None, None, None, "email", None),
    )


def test_an_option_that_a_record_lacks_is_an_error() -> None:
    with pytest.raises(KeyError, match="ttl_ms"):
        command(topic="t", **COLUMNS, **{k: v for k, v in FIELDS.items() if k != "ttl_ms"})
    with pytest.raises(TypeError, match="colour"):
        command(topic="t", colour="red", **FIELDS, **COLUMNS)


def test_a_command_keeps_its_name_and_its_help() -> None:
    assert (command.__name__, command.__doc__) == ("command", "What it does.")
