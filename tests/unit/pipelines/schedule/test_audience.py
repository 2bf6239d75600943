"""The audience: columns that are not there, and how a table is read. Its rows: tests/spark."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dejaqueue.errors import BadRequest
from dejaqueue.pipelines.schedule.audience import Wanted, read_table
from dejaqueue.pipelines.schedule.template import parse_template

COLUMNS = ("user", "zone", "when", "name")


def wanted(**changed: Any) -> Wanted:
    usual = {"user": "user", "zone": "zone", "zone_instead": "", "send_at": "", "local_ms": 0}
    return Wanted(**cast(Any, usual | {"template": None, "json_columns": ("name",)} | changed))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"user": "who"}, "--user: a column of the audience (user, zone, when, name), got: 'who'"),
        ({"zone": "tz"}, "--zone: a column"),
        ({"send_at": "then"}, "--send-at: a column"),
        ({"json_columns": ("name", "age")}, "--payload-columns: a column"),
        ({"template": parse_template("Hi {age}")}, "age"),
    ],
)
def test_a_column_that_is_not_there_is_named_with_its_option(
    changed: dict[str, Any], text: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        wanted(**changed).check(COLUMNS)
    assert text in str(refused.value)


def test_a_zone_need_not_be_there_where_another_stands_in() -> None:
    wanted(zone="tz", zone_instead="Europe/Berlin").check(COLUMNS)
    with pytest.raises(BadRequest, match="--zone"):
        wanted(zone="tz").check(COLUMNS)


def test_what_is_not_asked_for_need_not_be_there() -> None:
    wanted(json_columns=(), template=parse_template("Hi")).check(("user", "zone"))
    with pytest.raises(BadRequest, match="--user"):
        wanted(json_columns=()).check(("zone",))


class Spark:
    """A session that tells how a table is read."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    @property
    def read(self) -> Spark:
        return self

    def format(self, form: str) -> Spark:
        self.found["format"] = form
        return self

    def options(self, **given: str) -> Spark:
        self.found |= given
        return self

    def load(self, path: str) -> dict[str, Any]:
        return self.found | {"path": path}

    def table(self, name: str) -> dict[str, Any]:
        return {"table": name}


def read(path: str, form: str = "", **options: str) -> Any:
    return read_table(cast(Any, Spark()), path, form, options)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.csv", {"format": "csv", "header": "true"}),
        ("A.CSV.GZ", {"format": "csv", "header": "true"}),
        ("a.tsv", {"format": "csv", "header": "true", "sep": "\t"}),
        ("a.jsonl", {"format": "json"}),
        ("a.orc", {"format": "orc"}),
        ("a.parquet", {"format": "parquet"}),
        ("folder", {"format": "parquet"}),
    ],
)
def test_the_name_of_a_file_says_how_it_is_read(path: str, expected: dict[str, str]) -> None:
    assert read(path) == expected | {"path": path}


def test_what_is_said_wins_over_what_is_guessed() -> None:
    assert read("a.csv", "delta") == {"format": "delta", "path": "a.csv"}
    found = read("a.tsv", header="false", sep=";")
    assert (found["header"], found["sep"]) == ("false", ";")


def test_a_table_of_the_catalogue_is_read_by_its_name() -> None:
    assert read("mine.users.csv", "table") == {"table": "mine.users.csv"}
