"""Covers: no modules import each other in a circle, types counted; no arrow leads back up a room.

Each check is shown a planted import in the text of the real package. Not covered: which room is
above which (.importlinter, test_import_contracts.py).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

import pytest

from tests.tidy import exceptions
from tests.tidy.house_rules import ROOT, Source
from tests.tidy.module_graph import circles, folded, import_graph, module_sources, rooms

SOURCES = module_sources(ROOT / "src" / "dejaqueue", "dejaqueue")


def is_listed(members: list[str]) -> bool:
    """True if all of these are of one room that may still have a circle."""
    return any(
        all(member == room or member.startswith(f"{room}.") for member in members)
        for room in exceptions.CIRCLES
    )


def circles_of(sources: Mapping[str, str]) -> list[list[str]]:
    """Circles of modules that no exception lists."""
    return [members for members in circles(import_graph(sources)) if not is_listed(members)]


def back_arrows_of(sources: Mapping[str, str]) -> list[list[str]]:
    """Folders and files of one room that are above each other, where no exception lists it."""
    graph = import_graph(sources)
    found = []
    for room in rooms(sources):
        for members in circles(folded(graph, room)):
            whole = [f"{room}.{member}" for member in members]
            found += [] if is_listed(whole) else [whole]
    return found


FRONT_DOORS = ("dejaqueue", "dejaqueue.client")
"""They tell mypy what they import when it is asked for."""


def type_imports_of(sources: Mapping[str, str]) -> list[str]:
    """Imports under TYPE_CHECKING of a module's own room, without a reason on the line."""
    found = []
    for module, text in sources.items():
        room = ".".join(module.split(".")[:2])
        if "TYPE_CHECKING:" not in text or room in exceptions.CIRCLES:
            continue
        source = Source(module, text)
        for node in ast.walk(source.tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                found += [
                    f"{module}:{inner.lineno}: {ast.unparse(inner)}"
                    for inner in node.body
                    if isinstance(inner, ast.ImportFrom)
                    and module not in FRONT_DOORS
                    and f"{inner.module}.".startswith(f"{room}.")
                    and not source.allows(inner.lineno, "type-import")
                ]
    return found


def planted(module: str, line: str) -> dict[str, str]:
    """The package, with a line more in one module."""
    assert module in SOURCES
    return {**SOURCES, module: f"{SOURCES[module]}\n{line}\n"}


def test_there_are_no_circles() -> None:
    assert circles_of(SOURCES) == []


def test_no_arrow_leads_back_up_within_a_room() -> None:
    assert back_arrows_of(SOURCES) == []


def test_no_module_knows_its_own_room_for_types_only() -> None:
    assert type_imports_of(SOURCES) == []


def test_a_listed_room_still_has_a_circle() -> None:
    whole = [*circles(import_graph(SOURCES))]
    for room in exceptions.CIRCLES:
        assert any(member.startswith(room) for members in whole for member in members), (
            f"{room} has none now: take it off the list in exceptions.py"
        )


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("dejaqueue.engine.arrays", "from dejaqueue.engine.table import Pages"),
        (
            "dejaqueue.engine.commands",
            "if TYPE_CHECKING:\n    from dejaqueue.engine.state import PartitionState",
        ),
        ("dejaqueue.connections.sql", "def f():\n    import dejaqueue.connections.sqlite"),
    ],
)  # fmt: skip
def test_a_planted_circle_is_found(module: str, line: str) -> None:
    found = circles_of(planted(module, line))
    assert len(found) == 1
    assert module in found[0]


def test_a_planted_arrow_back_up_is_found_though_no_modules_form_a_circle() -> None:
    # lateness.py imports nothing of the client, so no module imports itself in the end.
    line = "from dejaqueue.client.consuming import lateness"
    sources = planted("dejaqueue.client.sending.fields", line)
    assert circles_of(sources) == []
    assert back_arrows_of(sources) == [["dejaqueue.client.consuming", "dejaqueue.client.sending"]]


def test_a_planted_type_import_is_found_and_one_with_a_reason_is_not() -> None:
    body = "from dejaqueue.wire import descriptors"
    bare = planted("dejaqueue.wire.frames", f"if TYPE_CHECKING:\n    {body}")
    assert len(type_imports_of(bare)) == 1
    reason = "# tidy: allow type-import, because it is planted"
    given = planted("dejaqueue.wire.frames", f"if TYPE_CHECKING:\n    {reason}\n    {body}")
    assert type_imports_of(given) == []
    other = planted(
        "dejaqueue.wire.frames", "if TYPE_CHECKING:\n    from dejaqueue.schema import keys"
    )
    assert type_imports_of(other) == []
