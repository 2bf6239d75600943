"""What a message or a cron entry says, as fields of a form, and back.

Room: console. Pure functions.
Holds: a field that came back as it was shown changes nothing, to the byte, whatever a browser does
to line ends; bytes have a field of their own, in base64; what is too long for a field is kept.
See: messages.py, which copies a message so; cron.py, which changes an entry so.
"""

from __future__ import annotations

import base64
import unicodedata
from collections.abc import Mapping
from typing import Any

from dejaqueue.console.api import ApiError

TEXT_CHARS_MAX = 64 << 10
"""A longer payload is in no field: it is kept, unless another one is written."""
PAYLOADS = ("payload", "payload_base64")
_CONTENT = ("key", "group", "priority", "tags", "headers")
_CLEAN = frozenset("\t\n\r")


def shown(content: Mapping[str, Any]) -> dict[str, str]:
    """The text of each field, of a message or an entry as the API shows it; {} = of nothing.

    >>> shown({"payload_base64": "/wA=", "tags": ["a", "b"]})["payload_base64"]
    '/wA='
    """
    texts = {name: str(content.get(name, "")) for name in ("key", "group", "priority")}
    texts["tags"] = ", ".join(content.get("tags", ()))
    texts["headers"] = "\n".join(f"{n}: {text}" for n, text in content.get("headers", {}).items())
    return texts | _payload_texts(content)


def payload_bytes(content: Mapping[str, Any]) -> int | None:
    """How long the payload is; None = it is not shown to this viewer."""
    if "payload" in content:
        return len(content["payload"].encode())
    if "payload_base64" in content:
        return len(base64.b64decode(content["payload_base64"]))
    return None


def content_of(form: Mapping[str, str], before: Mapping[str, Any]) -> dict[str, Any]:
    """What a form says, as the API takes it: of a field that was not touched, what was there.

    Args:
        before: what the form was filled from, as the API shows it; {} = nothing.

    >>> content_of({"payload": "a\\r\\nb", "tags": "x"}, {"payload": "a\\rb", "tags": ["x"]})
    {'tags': ['x'], 'payload': 'a\\rb'}
    >>> content_of({"payload": "a\\r\\nc", "group": ""}, {"payload": "a\\rb", "group": "vip"})
    {'payload': 'a\\nc'}

    Raises:
        ApiError: a field is of another type.
    """
    texts, content = shown(before), {}
    for name in _CONTENT:
        if name not in form or plain(form[name]) == plain(texts[name]):
            if name in before:
                content[name] = before[name]
        elif form[name].strip():
            content[name] = _parsed(name, form[name])
    return content | _payload_of(form, before, texts)


def plain(text: str) -> str:
    """A text with the line ends that a program writes, not those of a form.

    >>> plain("a\\r\\nb\\rc")
    'a\\nb\\nc'
    """
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _payload_texts(content: Mapping[str, Any]) -> dict[str, str]:
    """The payload in one of its two fields; in none, if it is too long or not shown."""
    text: str | None = content.get("payload")
    coded: str | None = content.get("payload_base64")
    if text is not None and not _is_clean(text):  # a browser would change it
        coded, text = base64.b64encode(text.encode()).decode(), None
    if len(text or coded or "") > TEXT_CHARS_MAX:
        text = coded = None
    return {"payload": text or "", "payload_base64": coded or ""}


def _payload_of(
    form: Mapping[str, str], before: Mapping[str, Any], texts: Mapping[str, str]
) -> dict[str, str]:
    typed = {name: plain(form.get(name, texts[name])) for name in PAYLOADS}
    typed["payload_base64"] = "".join(typed["payload_base64"].split())
    if all(typed[name] == plain(texts[name]) for name in PAYLOADS):
        return {name: before[name] for name in PAYLOADS if name in before}
    if all(typed.values()):
        raise ApiError(400, "a payload as text or as bytes in base64, not both")
    # One of the two was emptied, or written: the other is what is meant.
    return {name: text for name, text in typed.items() if text} or {"payload": ""}


def _parsed(name: str, text: str) -> Any:
    if name == "tags":
        return [tag.strip() for tag in text.split(",") if tag.strip()]
    if name == "headers":
        lines = [line.partition(":") for line in plain(text).split("\n") if line.strip()]
        return {header.strip(): value.strip() for header, _, value in lines}
    if name == "priority":
        try:
            return int(text)
        except ValueError:
            raise ApiError(400, f"priority: a whole number, got: {text[:100]}") from None
    return text


def _is_clean(text: str) -> bool:
    """True if a browser gives a text back as it was, but for its line ends."""
    return not any(unicodedata.category(one) in ("Cc", "Cs") and one not in _CLEAN for one in text)
