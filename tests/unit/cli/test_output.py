"""How commands print: text in columns for people, JSON lines for scripts."""

from __future__ import annotations

import json

import pytest

from dejaqueue.cli.output import payload_fields, print_fields, print_rows


def test_rows_are_aligned_under_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"name": "a", "count": 1}, {"name": "long", "count": None}], as_json=False)
    assert capsys.readouterr().out == "name  count\na     1\nlong  -\n"


def test_rows_as_json_are_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(({"n": n} for n in range(2)), as_json=True)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"n": 0},
        {"n": 1},
    ]


def test_no_rows_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([], as_json=False)
    assert capsys.readouterr().out == ""


def test_fields_of_groups_are_joined_by_dots(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields({"a": {"b": 1.5, "c": True}, "d": None}, as_json=False)
    assert capsys.readouterr().out == "a.b 1.500\na.c yes\nd -\n"


def test_rows_within_fields_are_numbered(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields({"partitions": [{"n": 1}, {"n": 2}], "consumers": []}, as_json=False)
    assert capsys.readouterr().out == "partitions.0.n 1\npartitions.1.n 2\n"


def test_payload_is_text_where_it_can_be() -> None:
    assert payload_fields("grüße".encode()) == {"payload": "grüße"}
    assert payload_fields(b"\xff\x00") == {"payload_base64": "/wA="}
