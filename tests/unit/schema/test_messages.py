"""What crosses the wire, as docs/wire.md has it: clients of other languages are written from that
page. Values: test_checks.py."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from dejaqueue.schema.messages import DELIVERY, MOVE, PEEK, SCAN, SEND, SETTLE

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "wire.md").read_text(encoding="utf-8")


def test_what_is_sent_is_delivered_in_the_same_types() -> None:
    shared = set(SEND.names) & set(DELIVERY.names)
    assert shared == {"payload", "due", "key", "group", "priority", "tags", "headers"}
    assert all(SEND.field(name).type == DELIVERY.field(name).type for name in shared)


def test_what_must_be_there_is_not_null() -> None:
    required = {field.name for field in SEND if not field.nullable}
    assert required == {"payload", "due", "priority"}
    assert all(not field.nullable for field in SETTLE)
    named = {field.name for field in DELIVERY if not field.nullable}
    assert named == {"id", "due", "attempts", "priority", "payload"}


def test_a_look_and_a_scan_begin_with_what_is_delivered() -> None:
    """Readers of one can read the next: columns are added at the end."""
    assert PEEK.names[: len(DELIVERY)] == DELIVERY.names
    shared = [*DELIVERY.names, "state"]
    for schema in (PEEK, SCAN):
        assert schema.names[: len(shared)] == shared
        assert [schema.field(name).type for name in shared] == [PEEK.field(n).type for n in shared]
    assert "consumer" not in SCAN.names, "who has a lease is in memory; a scan reads what is stored"
    assert SCAN.field("due").nullable, "a claim forgets it at a restart"
    assert not PEEK.field("due").nullable


@pytest.mark.parametrize("schema", [SEND, DELIVERY, MOVE, SCAN])
def test_every_column_is_on_the_page_of_the_wire(schema: pa.Schema) -> None:
    told = set(re.findall(r"`([a-z_]+)`", PAGE)) | set(re.findall(r"\b([a-z_]+)\b", PAGE))
    assert set(schema.names) <= told
