"""Kafka records as messages of DejaQ, and back: columns on both sides.

Room: pipelines. Expressions of Spark; nothing runs here.
Holds: a record comes out as it went in: key, value and headers to the byte, null or not. Where it
came from goes with it, as the message's key on the way in and as a header on the way out, so that
one record is one message and whoever reads the target can tell a record that was written twice.
See: docs/guides/pipelines.md for what users may write in an expression.

Headers of a message: `kafka.from` is topic/partition/offset of the record; `kafka.key` its key in
Base64 (absent = null); `kafka.headers` its headers as JSON with values in Base64 (absent = none);
`kafka.null` is there if its value is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dejaqueue import limits
from dejaqueue.errors import BadRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FROM = "kafka.from"
KEY = "kafka.key"
HEADERS = "kafka.headers"
NULL = "kafka.null"
FROM_HEADER = "dejaq.from"
"""The header of a record that is written: where the record came from."""
READ_SCHEMA = "headers map<string,string>, payload binary"
"""What is read of a message."""
SCOPE = {
    "key": "cast(key as string)",
    "value": "cast(value as string)",
    "headers": "map_from_arrays(array_distinct(transform(headers, h -> h.key)), "
    "transform(array_distinct(transform(headers, h -> h.key)), "
    "k -> cast(element_at(filter(headers, h -> h.key = k), -1).value as string)))",
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "timestamp": "timestamp",
}
"""What an expression of a user may name: of each record, texts for bytes; of two headers of one
name the last."""
_JSON = "array<struct<key:string,value:string>>"


def messages_of(records: DataFrame, by: str, expression: str) -> DataFrame:
    """Records as a table to write to DejaQ.

    Args:
        records: what Spark's source `kafka` gives with `includeHeaders`.
        by: "due" or "priority": what the expression says of a record.
        expression: SQL over SCOPE. Where it is null the message is due at once, or of usual
            priority; beyond what there is it is the nearest that there is.

    Raises:
        BadRequest: Spark does not understand the expression, or its type is none for this.
    """
    scope = ", ".join(f"{sql} as {name}" for name, sql in SCOPE.items())
    packed = records.selectExpr(f"struct({scope}) as scope", f"struct({_carried()}) as carried")
    try:
        said = packed.selectExpr("scope.*", "carried").selectExpr(
            f"({expression}) as said", "carried"
        )
    except Exception as wrong:  # pyspark's errors are one family, but differ with Connect
        if type(wrong).__name__ not in ("AnalysisException", "ParseException"):
            raise
        raise BadRequest(
            "--column", f"an SQL expression over {', '.join(SCOPE)}", _first_line(wrong)
        ) from None
    kind = said.schema["said"].dataType.simpleString()
    column = _due(kind) if by == "due" else _priority(kind)
    return said.selectExpr("carried.*", f"{column} as {by}")


def _carried() -> str:
    """The columns of a message that carry a record."""
    entries = (
        f"struct('{FROM}' as key, {_SOURCE} as value)",
        f"if(key is null, null, struct('{KEY}' as key, base64(key) as value))",
        f"if(headers is null, null, struct('{HEADERS}' as key, to_json(transform(headers, "
        "h -> struct(h.key as key, base64(h.value) as value))) as value))",
        f"if(value is null, struct('{NULL}' as key, '' as value), null)",
    )
    packed = f"map_from_entries(array_compact(array({', '.join(entries)})))"
    return f"coalesce(value, X'') as payload, {packed} as headers, {_SOURCE} as key"


_SOURCE = "concat_ws('/', topic, partition, offset)"


def _due(kind: str) -> str:
    """Milliseconds of a time: a part of one is rounded up, never early."""
    if kind in ("timestamp", "timestamp_ntz"):
        whole = "((unix_micros(cast(said as timestamp)) + 999) div 1000)"
    elif kind in ("bigint", "int"):
        whole = "cast(said as bigint)"
    elif kind in ("string", "void"):
        whole = "try_cast(said as bigint)"
    else:
        raise BadRequest("--column", "a timestamp, or UTC milliseconds", kind)
    return f"least(greatest({whole}, 0L), {limits.INSTANT_MS_MAX}L)"


def _priority(kind: str) -> str:
    if kind not in ("bigint", "int", "smallint", "tinyint", "string", "void"):
        raise BadRequest("--column", f"a whole number from 0 to {limits.PRIORITY_MAX}", kind)
    whole = "try_cast(said as bigint)"
    return f"cast(least(greatest({whole}, 0L), {limits.PRIORITY_MAX}L) as int)"


def records_of(messages: DataFrame) -> DataFrame:
    """Messages as a table to write with Spark's sink `kafka`.

    Records of one key are written by one task, in the order that they were released in.

    Args:
        messages: a batch of READ_SCHEMA, in the order in which DejaQ released them.
    """
    records = messages.selectExpr(
        f"unbase64(headers['{KEY}']) as key",
        f"if(headers['{NULL}'] is null, payload, null) as value",
        f"{_headers_back()} as headers",
        f"headers['{FROM}'] as source",
        "monotonically_increasing_id() as place",
    )
    from pyspark.sql.functions import expr

    together = records.repartition(expr("coalesce(key, cast(source as binary))"))
    return together.sortWithinPartitions("place").select("key", "value", "headers")


def sources_of(records: DataFrame) -> DataFrame:
    """Where records that `records_of` made came from: `source`, of what Kafka has of them."""
    own = f"element_at(filter(headers, h -> h.key = '{FROM_HEADER}'), -1).value"
    return records.selectExpr(f"cast({own} as string) as source").where("source is not null")


def _headers_back() -> str:
    back = (
        f"transform(from_json(coalesce(headers['{HEADERS}'], '[]'), '{_JSON}'), "
        "h -> struct(h.key as key, unbase64(h.value) as value))"
    )
    own = f"struct('{FROM_HEADER}' as key, cast(headers['{FROM}'] as binary) as value)"
    return f"concat({back}, array({own}))"


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
