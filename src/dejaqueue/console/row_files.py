"""Row files: the messages in the text of a small file, CSV or NDJSON, with what is wrong by line.

Room: console. Pure functions.
Holds: a row is a message as the API takes it, its times in UTC milliseconds; a file is bounded, and
one wrong line leaves none of its rows to be sent.
See: sending.py, the page; docs/guides/console.md, what a file looks like.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import orjson

from dejaqueue import limits
from dejaqueue.digits import number_of
from dejaqueue.times import parse_instant_ms

BYTES_MAX = 1 << 20
ROWS_MAX = 10_000
_PAYLOADS = ("payload", "payload_base64", "json")
_INSTANTS = ("due", "expires")
_HEADER = "header."
"""What the column of a header begins with."""


@dataclass(frozen=True, slots=True)
class LineError:
    """One line that cannot be sent.

    Attributes:
        line: from 1, as an editor counts.
        text: what is wrong.
    """

    line: int
    text: str


@dataclass(slots=True)
class RowFile:
    """What is in a file.

    Attributes:
        kind: CSV or NDJSON; "" = nothing.
        rows: messages as the API takes them.
        lines: where each row begins.
        errors: what is wrong, in the order of lines; not empty = nothing of it may be sent.
    """

    kind: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    errors: list[LineError] = field(default_factory=list)


def read_rows(text: str, due_column: str = "due") -> RowFile:
    """The messages of a file.

    Args:
        text: whole. NDJSON begins with a brace; of CSV the first line names the columns, which are
            parted by commas, semicolons or tabs.
        due_column: which column or field is the due time.

    >>> read_rows("payload,due\\nhello,2030-01-01T00:00:00Z").rows
    [{'payload': 'hello', 'due': 1893456000000}]
    >>> read_rows('{"payload": 1}').errors
    [LineError(line=1, text='payload: a text, got: 1')]
    """
    text = text.removeprefix("\ufeff")
    if len(text.encode(errors="replace")) > BYTES_MAX:
        return _refused(1, f"the file is longer than {BYTES_MAX:,} bytes")
    if not text.strip():
        return RowFile()
    is_json = text.lstrip().startswith("{")
    found = RowFile("NDJSON" if is_json else "CSV")
    values = (
        _json_lines(text, found, due_column) if is_json else _csv_lines(text, found, due_column)
    )
    for line, row in values:
        if len(found.rows) == ROWS_MAX:
            found.errors.append(LineError(line, f"more than {ROWS_MAX:,} messages"))
            break
        wrong = _checked(row)
        if wrong:
            found.errors.append(LineError(line, wrong))
        found.rows.append(row)
        found.lines.append(line)
    return found


def _refused(line: int, text: str) -> RowFile:
    return RowFile(errors=[LineError(line, text)])


def _json_lines(text: str, found: RowFile, due_column: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, content in enumerate(text.split("\n"), 1):
        if not content.strip():
            continue
        try:
            row = orjson.loads(content.encode())
        except (orjson.JSONDecodeError, UnicodeEncodeError) as error:
            found.errors.append(LineError(line, f"no JSON: {error}"))
            continue
        if type(row) is not dict:
            found.errors.append(LineError(line, "a JSON object is wanted"))
        elif due_column != "due" and "due" in row:
            wrong = f"the due time is in field {due_column}, and there is a field due"
            found.errors.append(LineError(line, wrong))
        else:
            if due_column in row:
                row["due"] = row.pop(due_column)
            yield line, row


# --- CSV ----------------------------------------------------------------------------------------


def _csv_lines(text: str, found: RowFile, due_column: str) -> Iterator[tuple[int, dict[str, Any]]]:
    head = text.lstrip("\n").partition("\n")[0]
    delimiter = max(",;\t", key=head.count)
    reader = csv.reader(StringIO(text, newline="\n"), delimiter=delimiter, strict=True)
    names: list[str] | None = None
    line = 1
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                pass
            elif names is None:
                names = [cell.strip() for cell in cells]
                if wrong := _wrong_names(names, due_column):
                    found.errors.append(LineError(line, wrong))
                    return
            elif len(cells) != len(names):
                wrong = f"{len(cells)} columns, and {len(names)} have a name"
                found.errors.append(LineError(line, wrong))
            else:
                try:
                    yield line, _row_of(dict(zip(names, cells, strict=True)), due_column)
                except ValueError as error:
                    found.errors.append(LineError(line, str(error)))
            line = reader.line_num + 1
    except csv.Error as error:
        found.errors.append(LineError(line, f"no CSV: {error}"))


def _wrong_names(names: list[str], due_column: str) -> str:
    """What is wrong with the names of the columns; "" = nothing."""
    if "" in names:
        return "a column has no name"
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        return f"two columns are called {twice[0]}"
    if due_column != "due" and due_column not in names:
        return f"there is no column {due_column}, which was named as the due time"
    if due_column != "due" and "due" in names:
        return f"the due time is in column {due_column}, and there is a column due"
    others = [name for name in names if not _is_field(name, due_column)]
    if others and any(name in names for name in _PAYLOADS):
        return f"{others[0]} is no field of a message; beside a payload there are fields alone"
    return ""


def _is_field(name: str, due_column: str) -> bool:
    return name in _FIELDS or name == due_column or name.startswith(_HEADER)


def _row_of(cells: dict[str, str], due_column: str) -> dict[str, Any]:
    """A message of the cells of a line. Raises ValueError: it is none.

    Columns that are no field of a message are its payload, as a JSON object of texts, if there is
    no column of the payload.
    """
    row: dict[str, Any] = {}
    others = {name: text for name, text in cells.items() if not _is_field(name, due_column)}
    if others:
        row["payload"] = json.dumps(others, ensure_ascii=False, separators=(",", ":"))
    for name, text in cells.items():
        if name == "payload":
            row[name] = text
        elif name.startswith(_HEADER):
            if text:
                row.setdefault("headers", {})[name.removeprefix(_HEADER)] = text
        elif text.strip() and name not in others:
            row["due" if name == due_column else name] = _cell(name, text)
    if any(row.get(name) is not None for name in _PAYLOADS[1:]) and not row.get("payload"):
        row.pop("payload", None)  # an empty cell beside one that is not
    return row


def _cell(name: str, text: str) -> Any:
    if name in _NUMBERS:
        return _whole(name, text)
    if name == "tags":
        return [tag.strip() for tag in text.split(",") if tag.strip()]
    if name == "json":
        try:
            return orjson.loads(text.encode())
        except (orjson.JSONDecodeError, UnicodeEncodeError) as wrong:
            raise ValueError(f"json: {wrong}") from None
    return text


def _whole(name: str, text: str) -> int:
    number = number_of(text.strip())
    if number is None:
        raise ValueError(f"{name}: a whole number, got: {text[:100]}")
    return number


# --- what may be in a message -------------------------------------------------------------------


def _is_text(value: Any) -> str:
    return "" if type(value) is str else "a text"


def _is_short(byte_count: int) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if type(value) is str and len(value.encode(errors="replace")) <= byte_count:
            return ""
        return f"a text of at most {byte_count} bytes"

    return check


def _is_whole(high: int) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        is_right = type(value) is int and 0 <= value <= high
        return "" if is_right else f"a whole number from 0 to {high}"

    return check


def _are_tags(value: Any) -> str:
    is_right = type(value) is list and len(value) <= limits.TAGS_MAX
    is_right = is_right and all(type(tag) is str and tag for tag in value)
    return "" if is_right else f"at most {limits.TAGS_MAX} texts, none of them empty"


def _are_headers(value: Any) -> str:
    is_right = type(value) is dict and all(
        name and type(text) is str for name, text in value.items()
    )
    return "" if is_right else "an object of texts"


def _anything(value: Any) -> str:
    return ""


_FIELDS: dict[str, Callable[[Any], str]] = {
    "payload": _is_text,
    "payload_base64": _is_text,
    "json": _anything,
    "due": _anything,
    "delay_ms": _is_whole(limits.INSTANT_MS_MAX),
    "key": _is_short(limits.KEY_BYTES_MAX),
    "group": _is_short(limits.GROUP_BYTES_MAX),
    "priority": _is_whole(limits.PRIORITY_MAX),
    "tags": _are_tags,
    "headers": _are_headers,
    "expires": _anything,
    "ttl_ms": _is_whole(limits.INSTANT_MS_MAX),
    "partition": _is_whole(limits.PARTITIONS_MAX - 1),
}
"""What a message may have, and what is wanted of it; the API checks the rest."""
_NUMBERS = ("delay_ms", "priority", "ttl_ms", "partition")


def _checked(row: dict[str, Any]) -> str:
    """What is wrong with a message, "" = nothing; its times become UTC milliseconds."""
    for name in [name for name, value in row.items() if value is None]:
        del row[name]
    for name, value in row.items():
        if name not in _FIELDS:
            return f"{name}: no field of a message; these are: {', '.join(_FIELDS)}"
        wanted = _FIELDS[name](value)
        if wanted:
            return f"{name}: {wanted}, got: {str(value)[:100]}"
    if sum(name in row for name in _PAYLOADS) != 1:
        return f"one of {', '.join(_PAYLOADS)} is wanted"
    for one, other in (("due", "delay_ms"), ("expires", "ttl_ms")):
        if one in row and other in row:
            return f"either {one} or {other}"
    for name in _INSTANTS:
        if name in row:
            try:
                row[name] = parse_instant_ms(str(row[name]))
            except (ValueError, OverflowError) as wrong:
                return f"{name}: {wrong}"
    return ""
