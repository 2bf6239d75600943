"""Options of pipelines: one typed model, from which the command line, its help and its checks come.

Room: pipelines. pydantic alone; no click, no Spark.
Holds: a wrong value is refused with the option, what it may be, and what it was (rule 15).
See: command.py, which makes the command line of a model; setting_words.py for ranges in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from dejaqueue.errors import BadRequest
from dejaqueue.setting_words import range_words
from dejaqueue.times import parse_instant_ms, parse_span_ms
from dejaqueue.topic_names import check_topic_name

if TYPE_CHECKING:
    from dejaqueue.client import Client

URL_DEFAULT = "dejaq://localhost:7464"
RETRY_MS_MAX = 30_000


@dataclass(frozen=True, slots=True)
class Shown:
    """How an option shows itself in the help: `Annotated[str, Shown("FILE")]`.

    Attributes:
        metavar: what stands for the value.
        variable: environment variable that is read if the option is not given; "" = none.
    """

    metavar: str
    variable: str = ""


def _span(value: object) -> int:
    return value if isinstance(value, int) else parse_span_ms(str(value))


def _instant(value: object) -> int:
    return value if isinstance(value, int) else parse_instant_ms(str(value))


def _topic(value: object) -> str:
    try:
        return check_topic_name(str(value))
    except BadRequest as wrong:
        # pydantic knows which option this is, and has it said.
        raise ValueError(wrong.limit) from None


def _names(value: object) -> object:
    return (
        tuple(part.strip() for part in value.split(",") if part.strip())
        if isinstance(value, str)
        else value
    )


Span = Annotated[int, BeforeValidator(_span), Shown("TIME")]
"""A length of time in milliseconds, typed as 250ms, 10s, 5m, 2h or 1d. Name the field `…_ms`."""
Instant = Annotated[int, BeforeValidator(_instant), Shown("INSTANT")]
"""UTC milliseconds, typed as 2026-12-24T18:00:00Z. Name the field `…_ms`."""
Topic = Annotated[str, BeforeValidator(_topic), Shown("TOPIC")]
"""The name of a topic."""
Names = Annotated[tuple[str, ...], BeforeValidator(_names), Shown("NAME,…")]
"""Names with commas between them; a tuple without this is an option that may be repeated."""


class PipelineOptions(BaseModel):
    """What every pipeline has: a broker, and how to show oneself to it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: Annotated[str, Shown("URL", "DEJAQ_URL")] = Field(
        default=URL_DEFAULT,
        description="The broker. Spark's executors must reach it at the same address.",
    )
    api_key: Annotated[str | None, Shown("KEY", "DEJAQ_API_KEY")] = Field(
        default=None,
        repr=False,
        description="An API key; others can see options: prefer the variable.",
    )
    tls_ca: Annotated[str | None, Shown("FILE", "DEJAQ_TLS_CA")] = Field(
        default=None,
        description="PEM file with the certificates that may sign a dejaqs:// broker's.",
    )
    tls_certificate: Annotated[str | None, Shown("FILE", "DEJAQ_TLS_CERTIFICATE")] = Field(
        default=None, description="PEM file with a certificate of our own, for mutual TLS."
    )
    tls_key: Annotated[str | None, Shown("FILE", "DEJAQ_TLS_KEY")] = Field(
        default=None, description="PEM file with the private key of --tls-certificate."
    )

    def __init__(self, **values: Any) -> None:
        """Check the values.

        Raises:
            BadRequest: names the option, what it may be and what it was.
        """
        try:
            super().__init__(**values)
        except ValidationError as wrong:
            raise _refusal(type(self), wrong, values) from None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The options of what was typed; None = was not given."""
        return cls(**{name: value for name, value in values.items() if value is not None})

    def source_options(self, **more: object) -> dict[str, str]:
        """Options of the data source `dejaq` for this broker, and more, as `topic="t"`.

        An underscore in a name stands for the dot of Spark's: `rows_per_partition`.
        """
        shown = {"url": self.url, **({"api_key": self.api_key} if self.api_key else {})}
        for name in ("ca", "certificate", "key"):
            path = getattr(self, f"tls_{name}")
            shown |= {f"tls.{name}": path} if path else {}
        return shown | {name.replace("_", "."): str(value) for name, value in more.items()}

    def client(self) -> Client:
        """A client of this broker, to be closed.

        Raises:
            Unavailable: no broker answers there.
        """
        from dejaqueue.client import Client, Tls

        files = {
            name: getattr(self, f"tls_{name}")
            for name in ("ca", "certificate", "key")
            if getattr(self, f"tls_{name}")
        }
        client = Client(
            self.url,
            name="dejaq-pipeline",
            api_key=self.api_key,
            tls=Tls(**files) if files else None,
            retry_ms_max=RETRY_MS_MAX,
        )
        try:
            client.connect()
        except BaseException:
            client.close()
            raise
        return client


def flag(field_name: str) -> str:
    """The option of a field. A unit of time at its end is typed with the value, not the name.

    >>> flag("ahead_ms"), flag("dry_run")
    ('--ahead', '--dry-run')
    """
    return "--" + field_name.removesuffix("_ms").replace("_", "-")


def _refusal(
    kind: type[PipelineOptions], wrong: ValidationError, values: Mapping[str, Any]
) -> BadRequest:
    """The first complaint of pydantic's, in our words."""
    first = wrong.errors(include_url=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    field = kind.model_fields.get(name)
    if field is None:
        known = ", ".join(map(flag, kind.model_fields))
        return BadRequest("option", f"one of {known}", flag(name))
    if first["type"] == "missing":
        return BadRequest(flag(name), "must be given", None)
    said = first["msg"].removeprefix("Value error, ").partition(", got:")[0]
    words = said if first["type"] == "value_error" else range_words(field)
    return BadRequest(flag(name), words, "***" if name == "api_key" else values.get(name))
