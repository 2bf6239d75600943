"""The HTTP API's OpenAPI document, and a page of Markdown that says the same.

Room: scripts. Makes the application of a broker that is not started; opens no port.
Holds: each operation of the document is on the page; the page loads nothing of anybody else's.
See: scripts/generate_site.py; src/dejaqueue/http/openapi.py for where the document comes from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

METHODS = ("get", "post", "put", "patch", "delete")
Described = dict[str, Any]


def openapi_document() -> Described:
    """What a broker answers at /openapi.json."""
    from dejaqueue.access.gate import Gate
    from dejaqueue.broker.broker import Broker
    from dejaqueue.http.app import build_app
    from dejaqueue.http.service import Service

    document: Described = build_app(Service(Broker(), Gate(), lambda: True)).openapi()
    return document


def http_reference(document: Described) -> str:
    """The page: one section for each tag, or first part of a path, one below it for each
    operation.
    """
    groups: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method in METHODS:
            if method in operations:
                group = group_of(path)
                groups.setdefault(group, []).append(
                    operation_text(document, method, path, operations[method])
                )
    lines = [
        "# HTTP API",
        "",
        "Every call of a broker's HTTP port, and how it answers. For programs the same is in "
        "[openapi.json](../openapi.json); how to use it is told in [HTTP](../guides/http.md). "
        "A broker has a page at `/docs` on which calls can be tried.",
        "",
    ]
    for group in sorted(groups):
        lines += [f"## {group}", "", *groups[group]]
    return "\n".join(lines)


def group_of(path: str) -> str:
    """What a path is about: its first word behind the version."""
    words = [word for word in path.split("/") if word and not word.startswith("{")]
    if words[:1] in (["API"], ["api"]):
        return "DOQ"
    if words[:1] == ["v1"] and words[1:]:
        return words[1].capitalize()
    return "Health and metrics"


def operation_text(document: Described, method: str, path: str, operation: Described) -> str:
    """The section of an operation."""
    lines = [f"### `{method.upper()} {path}`", "", paragraph(operation["description"]), ""]
    rows = [
        (
            f"`{one['name']}`",
            one["in"] + (", required" if one.get("required") else ""),
            type_of(one.get("schema", {})),
            one.get("description", one.get("schema", {}).get("description", "")),
        )
        for one in operation.get("parameters", [])
    ]
    if rows:
        lines += [*table(("parameter", "where", "type", "what"), rows), ""]
    content = operation.get("requestBody", {}).get("content", {})
    lines += list(body_lines(document, "Body", content))
    for status, answer in sorted(operation["responses"].items()):
        if status.startswith("2"):
            said = answer.get("description", "").rstrip(".")
            title = f"Answer {status}" + (f": {said}" if said else "")
            lines += list(body_lines(document, title, answer.get("content", {}), always=True))
    refused = [status for status in sorted(operation["responses"]) if not status.startswith("2")]
    if refused:
        lines += [f"Refused with {', '.join(refused)}: see [errors](errors.md).", ""]
    return "\n".join(lines)


def body_lines(
    document: Described, title: str, content: Described, *, always: bool = False
) -> Iterator[str]:
    """What a request or an answer carries: kinds of content, fields, an example."""
    if not content and not always:
        return
    kinds = ", ".join(f"`{kind}`" for kind in content)
    yield f"**{title}**" + (f" ({kinds})" if kinds else "")
    yield ""
    described = content.get("application/json", {})
    for name, schema in models_of(document, described.get("schema", {})):
        rows = [
            (
                f"`{field}`" + (" (required)" if field in schema.get("required", []) else ""),
                type_of(one),
                one.get("description", ""),
            )
            for field, one in schema.get("properties", {}).items()
        ]
        if rows:
            yield from table((f"field of {name}", "type", "what"), rows)
            yield ""
    if "example" in described:
        yield from ("```json", json.dumps(described["example"], indent=2), "```", "")


def models_of(document: Described, schema: Described) -> Iterator[tuple[str, Described]]:
    """The named schemas that one is, or is one of, or has a list of."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield name, document["components"]["schemas"][name]
    for one in (*schema.get("anyOf", []), *schema.get("oneOf", [])):
        yield from models_of(document, one)
    if "items" in schema:
        yield from models_of(document, schema["items"])


def type_of(schema: Described) -> str:
    """A schema's type in a word or two."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    several = schema.get("anyOf") or schema.get("oneOf")
    if several:
        words = [type_of(one) for one in several if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(words))
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def paragraph(text: str) -> str:
    """A description without the spaces that its docstring is set in by."""
    return "\n".join(
        line.strip() if not line.startswith("    ") else line for line in text.splitlines()
    )


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """A table of Markdown."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(" ".join(one.split()).replace("|", "\\|") for one in row) + " |"
