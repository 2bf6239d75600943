"""Row files: what becomes of each line, what is wrong with it, and the bounds of a file.

Not covered here: the page and what is sent (test_sending.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from dejaqueue.console.row_files import BYTES_MAX, ROWS_MAX, read_rows

DUE = "2030-01-01T01:00:00+01:00"
DUE_MS = 1_893_456_000_000


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("", []),
        ('{"payload": "a"}\n\n{"json": {"b": 1}, "due": 1893456000000}',
         [{"payload": "a"}, {"json": {"b": 1}, "due": DUE_MS}]),
        (f"payload,due\na,{DUE}\n", [{"payload": "a", "due": DUE_MS}]),
        ("payload;priority;tags\na,b;3;x, y\n",
         [{"payload": "a,b", "priority": 3, "tags": ["x", "y"]}]),
        ("payload\theader.trace\tkey\na\t7\t\n", [{"payload": "a", "headers": {"trace": "7"}}]),
        ('payload,key\n"two\nlines, ""so""",k\n', [{"payload": 'two\nlines, "so"', "key": "k"}]),
        ("\ufeffpayload,delay_ms\na\u2028b,5\n", [{"payload": "a\u2028b", "delay_ms": 5}]),
        ("name,age,group\nÄnne,7,vip\n",
         [{"payload": '{"name":"Änne","age":"7"}', "group": "vip"}]),
        ('json,payload_base64\n"{""a"":[1]}",\n,/w==\n',
         [{"json": {"a": [1]}}, {"payload_base64": "/w=="}]),
        ("payload,payload_base64\na,\n,/w==\n", [{"payload": "a"}, {"payload_base64": "/w=="}]),
        ("payload\n\na\n", [{"payload": "a"}]),
    ],
)  # fmt: skip
def test_a_line_is_a_message(text: str, rows: list[dict[str, Any]]) -> None:
    found = read_rows(text)
    assert (found.errors, found.rows) == ([], rows)


def test_the_due_time_is_in_the_column_that_is_named() -> None:
    assert read_rows(f"name,when\na,{DUE}\n", "when").rows == [
        {"payload": '{"name":"a"}', "due": DUE_MS}
    ]
    assert read_rows(f'{{"payload":"a","when":"{DUE}"}}', "when").rows == [
        {"payload": "a", "due": DUE_MS}
    ]


@pytest.mark.parametrize(
    ("text", "due_column", "line", "part"),
    [
        ('{"payload":"a"}\n{"payload":', "due", 2, "no JSON"),
        ('{"payload":"a"}\n[1]', "due", 2, "a JSON object"),
        ('{"payload":"a"}\n\n{"payload":"a","dew":1}', "due", 3, "dew: no field"),
        ('{"payload":"a","payload_base64":""}', "due", 1, "one of payload"),
        ('{"key":"a"}', "due", 1, "one of payload"),
        ('{"payload":1}', "due", 1, "payload: a text, got: 1"),
        ('{"payload":"a","due":"2030-01-01T00:00:00"}', "due", 1, "needs its zone"),
        ('{"payload":"a","due":1893456000}', "due", 1, "looks like seconds"),
        ('{"payload":"a","due":1893456000000,"delay_ms":1}', "due", 1, "either due or delay_ms"),
        ('{"payload":"a","due":1893456000000,"when":1893456000000}', "when", 1, "a field due"),
        ('{"payload":"a","priority":65536}', "due", 1, "from 0 to 65535"),
        ('{"payload":"a","priority":true}', "due", 1, "from 0 to 65535"),
        ('{"payload":"a","tags":"x"}', "due", 1, "tags"),
        ('{"payload":"a","headers":{"a":1}}', "due", 1, "headers"),
        ('{"payload":"a","key":"' + "k" * 5_000 + '"}', "due", 1, "key"),
        ("payload,due\na,\nb,tomorrow\n", "due", 3, "an instant is like"),
        ('payload,key\n"a\nb",k\nc\n', "due", 4, "1 columns"),
        ("payload,payload\na,b\n", "due", 1, "two columns"),
        ("payload,\na,b\n", "due", 1, "no name"),
        ("payload,name\na,b\n", "due", 1, "name is no field"),
        ("payload\na\n", "when", 1, "no column when"),
        ("payload,priority\na,high\n", "due", 2, "priority: a whole number"),
        ('json,key\n{a,k\n', "due", 2, "json"),
        ('payload\n"a', "due", 2, "no CSV"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(
    text: str, due_column: str, line: int, part: str
) -> None:
    [found] = read_rows(text, due_column).errors
    assert found.line == line
    assert part in found.text


def test_every_wrong_line_is_named() -> None:
    found = read_rows("payload,priority\na,x\nb,1\nc,y\n")
    assert [one.line for one in found.errors] == [2, 4]


def test_a_file_has_bounds() -> None:
    assert not read_rows("payload\n" + "a\n" * ROWS_MAX).errors
    [found] = read_rows("payload\n" + "a\n" * (ROWS_MAX + 2)).errors
    assert (found.line, "more than 10,000" in found.text) == (ROWS_MAX + 2, True)
    [found] = read_rows("ä" * (BYTES_MAX // 2 + 1)).errors
    assert "1,048,576 bytes" in found.text
