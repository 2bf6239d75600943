"""Configuration: the settings of a broker that is started, and where each of them came from.

Room: vocabulary. Reads a TOML file and the environment; decides nothing about what they say.
Holds: later wins: code < TOML file < environment < command line; a key nobody knows is refused with
the nearest one that is known; a value that is refused is named with its range and its source; no
password is shown.
See: settings.py for what there is; docs/guides/configuration.md.

In a file:          [journal]
                    segment_bytes = 67_108_864
In the environment: DEJAQ_JOURNAL__SEGMENT_BYTES=67108864
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from dejaqueue.errors import BadRequest
from dejaqueue.setting_secrets import MASK, masked
from dejaqueue.setting_words import range_words
from dejaqueue.settings import BrokerSettings, known_settings

ENVIRONMENT_PREFIX = "DEJAQ_"
GROUP_DELIMITER = "__"
"""Between group and field in the environment. Names without it are no settings and are left alone:
DEJAQ_URL is the client's, and Kubernetes sets DEJAQ_PORT and the like for a service of that name.
"""
USUAL_FILES = (Path("dejaq.toml"), Path("/etc/dejaq/dejaq.toml"))
"""Where a settings file is looked for if none is named: the first that exists is read."""
DEFAULT = "default"


@dataclass(frozen=True)
class Loaded:
    """Settings, and where they came from.

    Attributes:
        sources: by `group.field`, of what is not a default: `dejaq.toml:3`,
            `DEJAQ_SERVER__PORT`, `--port`.
        file: the file that was read; None = none.
    """

    settings: BrokerSettings
    sources: Mapping[str, str]
    file: Path | None

    def source_of(self, name: str) -> str:
        """Where a setting came from."""
        return self.sources.get(name, DEFAULT)


@dataclass
class _Gathered:
    """Values before they are checked, with their sources."""

    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    problems: list[BadRequest] = field(default_factory=list)

    def put(self, name: str, value: Any, source: str) -> None:
        """Take a value, unless nobody knows its name; what was there before is overruled."""
        known = _known()
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
            limit = f"the name of a setting; the nearest is {near}"
            self.problems.append(BadRequest(source, limit, name))
            return
        group, _, short = name.partition(".")
        self.values.setdefault(group, {})[short] = value
        self.sources[name] = source


def load(
    file: Path | None = None,
    flags: Mapping[str, tuple[str, Any]] | None = None,
) -> Loaded:
    """The settings of a broker that is started: file, then environment, then command line.

    Args:
        file: a TOML file; None = no file. See `usual_file`.
        flags: what the command line says: by `group.field`, the flag and its value.

    Raises:
        BadRequest: the file cannot be read, a key is not known, or a value is out of bounds; names
            the setting, where it came from, the range and the value.
    """
    loaded, problems = look(file, flags)
    if loaded is None:
        raise problems[0]
    return loaded


def look(
    file: Path | None = None,
    flags: Mapping[str, tuple[str, Any]] | None = None,
    *,
    environment: bool = True,
) -> tuple[Loaded | None, list[BadRequest]]:
    """As `load`, but gives everything that is wrong instead of raising the first of it."""
    found = _Gathered()
    if file is not None:
        try:
            _gather_file(file, found)
        except BadRequest as error:
            return None, [error]
    if environment:
        _gather_environment(found)
    for name, (flag, value) in (flags or {}).items():
        found.put(name, value, flag)
    settings = None
    try:
        settings = BrokerSettings(**found.values)  # type: ignore[arg-type]
    except ValidationError as error:
        details = error.errors(include_url=False)
        found.problems += [_to_bad_request(detail, found) for detail in details]
    if settings is None or found.problems:
        return None, found.problems
    return Loaded(settings, found.sources, file), []


def usual_file() -> Path | None:
    """The first file of USUAL_FILES that exists."""
    return next((file for file in USUAL_FILES if file.is_file()), None)


def parse_assignment(text: str) -> tuple[str, Any]:
    """`group.field=value`, as `--set` takes it: the name and the value, not checked yet.

    Raises:
        BadRequest: there is no `=`, or the name is not known, or a table is not JSON.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise BadRequest("--set", "group.field=value", masked("", text))
    gathered = _Gathered()
    gathered.put(name.strip(), value, "--set")
    if gathered.problems:
        raise gathered.problems[0]
    return name.strip(), _parsed(name.strip(), value.strip(), f"--set {name.strip()}")


def _parsed(name: str, text: str, source: str) -> Any:
    """Text as a value: a table is JSON, everything else is left to the check."""
    if "dict" not in str(_known()[name].annotation):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        limit = f"{range_words(_known()[name])}, as JSON"
        raise BadRequest(f"{name} ({source})", limit, text) from error


def _known() -> dict[str, FieldInfo]:
    return {f"{group}.{name}": field for group, name, field in known_settings()}


def _gather_file(file: Path, found: _Gathered) -> None:
    try:
        text = file.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except OSError as error:
        raise BadRequest("settings file", "a file that can be read", str(file)) from error
    except ValueError as error:
        raise BadRequest("settings file", f"TOML ({error})", str(file)) from error
    lines = _lines_of(text)

    def source(name: str) -> str:
        return f"{file}:{lines[name]}" if name in lines else str(file)

    for group, fields in tables.items():
        if not isinstance(fields, dict) or (
            not fields and group not in BrokerSettings.model_fields
        ):
            found.put(group, fields, source(group))
            continue
        for short, value in fields.items():
            name = f"{group}.{short}"
            found.put(name, value, source(name))


HEAD = re.compile(r"^\s*\[\s*(?P<name>[\w.\-]+)\s*\]")
KEY = re.compile(r"^\s*(?P<name>[\w.\-]+)\s*=")


def _lines_of(text: str) -> dict[str, int]:
    """The line of each name that is written plainly; of others the file must do."""
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := HEAD.match(line):
            table = head["name"]
            lines.setdefault(table, number)
        elif key := KEY.match(line):
            lines.setdefault(f"{table}.{key['name']}" if table else key["name"], number)
    return lines


def _gather_environment(found: _Gathered) -> None:
    for variable in sorted(os.environ):
        if not variable.startswith(ENVIRONMENT_PREFIX) or GROUP_DELIMITER not in variable:
            continue
        short = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        name = short.replace(GROUP_DELIMITER, ".", 1)
        value: Any = os.environ[variable]
        if name in _known():
            try:
                value = _parsed(name, value, variable)
            except BadRequest as error:
                found.problems.append(error)
                continue
        found.put(name, value, variable)


def _to_bad_request(detail: ErrorDetails, found: _Gathered) -> BadRequest:
    """A complaint of pydantic's, in our words."""
    parts = [str(part) for part in detail["loc"]]
    name = ".".join(parts[:2])
    if name in _known():
        shown = f"{name} ({found.sources[name]})" if name in found.sources else name
        value = masked(name, found.values.get(parts[0], {}).get(parts[1], detail["input"]))
        return BadRequest(shown, range_words(_known()[name]), value)
    text = detail["msg"].removeprefix("Value error, ")
    group = parts[0] if parts else "settings"
    named = [
        f"{group}.{word}" for word in re.findall(r"\w+", text) if f"{group}.{word}" in _known()
    ]
    values = ", ".join(_with_source(name, found) for name in dict.fromkeys(named))
    return BadRequest(group, text, values or MASK)


def _with_source(name: str, found: _Gathered) -> str:
    group, _, short = name.partition(".")
    value = found.values.get(group, {}).get(short, _known()[name].default)
    return f"{short} {masked(name, value)} ({found.sources.get(name, DEFAULT)})"
