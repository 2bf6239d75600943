"""Covers: ARCHITECTURE.md and the life of a message name what the code has: rooms, threads, states.

Not covered: that the words beside a name are true; threads of the simulator, the demo, libraries.
"""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dejaqueue.engine.transitions import TRANSITIONS
from dejaqueue.model import MessageState
from tests.tidy import house_rules as house

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
SOURCES = [path for path in house.tracked_files() if path.startswith("src/dejaqueue/")]
OTHER_ROOMS = ("src/dejaqueue/testing/", "src/dejaqueue/cli/demo/")
STARTS = {"Thread": (), "ThreadPoolExecutor": (1,), "Alarm": (1,)}
"""What starts threads, and which of its arguments is the name, if it has no name as a keyword."""
HAND_ON = {"executor": 0, "worker": 0, "start": 0, "Committer": 0}
"""Methods that take the name of a thread: a text as this argument is one."""
NAME_KEYWORDS = ("name", "thread_name_prefix")


def section(title: str) -> str:
    """The text of a section of ARCHITECTURE.md."""
    return ARCHITECTURE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


# --- rooms ----------------------------------------------------------------------------------


def layers() -> list[set[str]]:
    """The rooms, from above, as .importlinter keeps them apart."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter", encoding="utf-8")
    lines = parser["importlinter:contract:layers"]["layers"].split("\n")
    found = [set(re.split(r"\s*[|:]\s*", line.strip())) for line in lines if line.strip()]
    return [layer for layer in found if layer != {"__main__"}]


def drawn_layers() -> list[set[str]]:
    """The rooms as they are drawn: names, apart by | or ·, then two spaces and what they are."""
    lines = re.findall(r"^ {4}(\S.*)$", section("The rooms"), re.MULTILINE)
    return [set(re.split(r" [|·] ", re.split(r"\s{2,}", line)[0])) for line in lines]


def test_the_rooms_are_drawn_as_they_are_kept_apart() -> None:
    assert drawn_layers() == layers()


# --- threads --------------------------------------------------------------------------------


def spelled(node: ast.expr | None) -> str | None:
    """A text, with * for what is known only when it runs; None if it is no text at all."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "*" for part in node.values)
        return "".join(map(str, parts))
    return None


def name_of(call: ast.Call) -> str | None:
    """The name that a call gives to a thread; None = it starts none, or its caller names it."""
    called = (
        call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    )
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if called in STARTS:
        places = [keywords.get(name) for name in NAME_KEYWORDS]
        places += [call.args[place] for place in STARTS[called] if place < len(call.args)]
        return next(filter(None, map(spelled, places)), None)
    if called in HAND_ON and call.args:
        return spelled(call.args[HAND_ON[called]])
    return None


def names_in(text: str) -> Iterator[str]:
    """The names of threads that a module gives."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            found = name_of(node)
            if found is not None:
                yield found
        if isinstance(node, ast.Tuple) and node.elts:
            # Several are started in a loop over their names.
            found = spelled(node.elts[0])
            if found is not None and found.startswith("dejaq-"):
                yield found
        if isinstance(node, ast.FunctionDef):
            # A name that its caller may leave out.
            defaults = zip(reversed(node.args.args), reversed(node.args.defaults), strict=False)
            yield from (
                found
                for argument, default in defaults
                if argument.arg == "name" and (found := spelled(default)) and "-" in found
            )


def threads_in_code() -> dict[str, str]:
    """Name of each kind of thread, and a file that starts it."""
    found = {}
    for path in SOURCES:
        if path.endswith(".py") and not path.startswith(OTHER_ROOMS):
            for name in names_in((ROOT / path).read_text(encoding="utf-8")):
                found[name] = path
    return found


def threads_in_table() -> set[str]:
    """The names in the first column."""
    rows = re.findall(r"^\| (`[^|]+) \|", section("Threads"), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_every_thread_is_in_the_table__and_none_that_is_not_there() -> None:
    code, table = threads_in_code(), threads_in_table()
    assert len(code) > 20
    missing = [f"{name} ({path})" for name, path in sorted(code.items()) if name not in table]
    assert missing == []
    assert sorted(table - code.keys()) == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("threading.Thread(target=run, name='dejaq-a').start()", ["dejaq-a"]),
        ("ThreadPoolExecutor(2, thread_name_prefix='dejaq-b')", ["dejaq-b"]),
        ("ThreadPoolExecutor(2, 'dejaq-c')", ["dejaq-c"]),
        ("self._threads.executor('dejaq-d', 3)", ["dejaq-d"]),
        ("threads.worker(f'dejaq-worker-{n}', clock)", ["dejaq-worker-*"]),
        ("class A:\n  def __init__(self, clock, name='dejaq-e'): ...", ["dejaq-e"]),
        (
            "for name, run in (('dejaq-f', f), ('dejaq-g', g)): start(name, run)",
            ["dejaq-f", "dejaq-g"],
        ),
        ("service.start()", []),
    ],
)
def test_the_name_of_a_thread_is_found(text: str, names: list[str]) -> None:
    assert list(names_in(text)) == names


# --- states ---------------------------------------------------------------------------------


def test_every_state_is_on_the_page_about_the_life_of_a_message() -> None:
    page = (ROOT / "docs/reference/lifecycle.md").read_text(encoding="utf-8")
    head = re.search(r"^\| command \| (.+) \|$", page, re.MULTILINE)
    assert head is not None
    names = {state.name.lower() for state in MessageState}
    assert set(head[1].split(" | ")) == names
    explained = set(re.findall(r"^\| ([a-z_]+) \| \S", page.partition("<!--")[0], re.MULTILINE))
    assert names <= explained
    commands = {command for _, command in TRANSITIONS}
    assert commands <= set(re.findall(r"^\| ([a-z ]+) \|", page.partition("<!--")[2], re.MULTILINE))
