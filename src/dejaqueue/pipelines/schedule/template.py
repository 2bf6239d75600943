"""A template: text with the columns of a table in braces, as one Spark expression.

    Dear {name|reader}, {{this is in braces}}

Room: pipelines. pyspark in functions only.
Holds: a placeholder that is no column is refused with its name before anything is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dejaqueue.errors import BadRequest

if TYPE_CHECKING:
    from pyspark.sql import Column

_PIECE = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}|]*)(?:\|(?P<instead>[^{}]*))?\}|(?P<stray>[{}])")


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A column's value.

    Attributes:
        instead: what stands there if the value is null; None = a row without a value is missing.
    """

    column: str
    instead: str | None = None


@dataclass(frozen=True, slots=True)
class Template:
    """Text and placeholders, in order."""

    parts: tuple[str | Placeholder, ...]

    @property
    def required(self) -> list[str]:
        """Columns that must have a value in every row."""
        return [
            part.column
            for part in self.parts
            if isinstance(part, Placeholder) and part.instead is None
        ]

    def check(self, columns: Sequence[str]) -> None:
        """Raise BadRequest if a placeholder is none of these columns."""
        for part in self.parts:
            if isinstance(part, Placeholder) and part.column not in columns:
                wanted = f"a column of the audience ({', '.join(columns)})"
                raise BadRequest(f"--template: {{{part.column}}}", wanted, part.column)

    def expression(self) -> Column:
        """The text of a row, in UTF-8."""
        from pyspark.sql import functions as sql

        pieces = []
        for part in self.parts:
            if isinstance(part, str):
                pieces.append(sql.lit(part))
                continue
            value = column(part.column).cast("string")
            has_other = part.instead is not None
            pieces.append(sql.coalesce(value, sql.lit(part.instead)) if has_other else value)
        return sql.concat(*pieces) if pieces else sql.lit("")


def column(name: str) -> Column:
    """A column of exactly this name, whatever is in it."""
    from pyspark.sql import functions as sql

    return sql.col(f"`{name.replace('`', '``')}`")


def parse_template(text: str) -> Template:
    """The template that this text is.

    Raises:
        BadRequest: a brace is open or closed alone, or a placeholder is empty.

    >>> parse_template("Dear {name|reader}!").parts
    ('Dear ', Placeholder(column='name', instead='reader'), '!')
    """
    parts: list[str | Placeholder] = []
    plain, at = "", 0
    for found in _PIECE.finditer(text):
        plain += text[at : found.start()]
        at = found.end()
        if found["stray"] is not None:
            wanted = "braces in pairs: {column}, or {{ and }} for a brace itself"
            raise BadRequest("--template", wanted, text[found.start() : found.start() + 20])
        if found["name"] is None:
            plain += found[0][0]
            continue
        name = found["name"].strip()
        if not name:
            raise BadRequest("--template", "the name of a column in braces", found[0])
        if plain:
            parts.append(plain)
            plain = ""
        parts.append(Placeholder(name, found["instead"]))
    plain += text[at:]
    return Template((*parts, plain) if plain else tuple(parts))
