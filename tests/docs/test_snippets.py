"""Covers: every Python block of the README and the documentation runs, and prints what it says.

The blocks of a page run one after another, in one namespace, in a folder of their own. A page that
names `dejaq://localhost:7464`, or `http://localhost:7465` in such a block, gets a broker of its own
behind that address. A block after
`<!-- prints -->` is what was printed since the last one. A page's blocks of `console` name commands
and options that exist, and so does what it says of commands in between.

Not covered: what the commands do (tests/unit/cli, tests/integration).
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "dejaq://localhost:7464"
HTTP_ADDRESS = "http://localhost:7465"
BLOCK = re.compile(
    r"(?P<prints><!-- prints -->\s*\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


def pages_with(language: str) -> list[Path]:
    """Pages that have a block of this language."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in pages if f"```{language}\n" in page.read_text(encoding="utf-8")]


@contextlib.contextmanager
def served_over_http() -> Iterator[str]:
    """A broker that serves HTTP on a free port; its address."""
    from tests.integration.access_fixture import running

    with running() as site:
        yield site.http_url


@contextlib.contextmanager
def served(payloads: Path) -> Iterator[str]:
    """A broker that serves on a free port, with a payload store in this folder; its address."""
    from dejaqueue.broker.broker import Broker
    from dejaqueue.flight.server import FlightServer
    from dejaqueue.setting_groups import PayloadSettings
    from dejaqueue.settings import BrokerSettings, JournalSettings

    settings = BrokerSettings(
        journal=JournalSettings(url="memory:"), payloads=PayloadSettings(url=str(payloads))
    )
    broker = Broker(settings)
    broker.start()
    server = FlightServer(broker)
    server.start()
    try:
        yield server.url
    finally:
        server.stop()
        broker.stop()


def run_page(text: str, name: str, address: str, http_address: str = "") -> int:
    """Run a page's blocks; the number of blocks that ran."""
    namespace: dict[str, object] = {"__name__": "__page__"}
    printed = io.StringIO()
    count = 0
    for block in BLOCK.finditer(text):
        line = text[: block.start("text")].count("\n")
        if block["language"] == "python":
            # Padded, so that a traceback names the line of the page.
            source = "\n" * line + block["text"].replace(ADDRESS, address)
            source = source.replace(HTTP_ADDRESS, http_address or HTTP_ADDRESS)
            with contextlib.redirect_stdout(printed):
                exec(compile(source, name, "exec", dont_inherit=True), namespace)
            count += 1
        elif block["prints"]:
            assert printed.getvalue() == block["text"], f"{name}, line {line}"
            printed.seek(0)
            printed.truncate()
    return count


@pytest.mark.parametrize("page", pages_with("python"), ids=lambda page: page.name)
def test_the_snippets_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    blocks = [one["text"] for one in BLOCK.finditer(text) if one["language"] == "python"]
    by_http = any(HTTP_ADDRESS in block for block in blocks)
    with (
        served(tmp_path / "payloads") if ADDRESS in text else contextlib.nullcontext("") as address,
        served_over_http() if by_http else contextlib.nullcontext("") as http_address,
    ):
        assert run_page(text, str(page), address, http_address) > 0


def test_a_page_that_prints_something_else_is_found() -> None:
    wrong = "```python\nprint(1)\n```\n\n<!-- prints -->\n\n```text\n2\n```\n"
    with pytest.raises(AssertionError, match="line 7"):
        run_page(wrong, "page", "")


def commands() -> list[tuple[str, str]]:
    """(page, command) of every line of a console block."""
    found = []
    for page in pages_with("console"):
        for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
            if block["language"] == "console":
                lines = block["text"].splitlines()
                found += [(page.name, line[2:]) for line in lines if line.startswith("$ dejaq ")]
    return found


def parse(command: str) -> None:
    """Parse a command with its arguments; run nothing."""
    from dejaqueue.cli.main import main

    words = shlex.split(command)[1:]
    place: click.Command = main
    context = click.Context(main, info_name="dejaq")
    while isinstance(place, click.Group):
        name = words.pop(0)
        below = place.get_command(context, name)
        assert below is not None, f"no command {name!r} in {command!r}"
        context = click.Context(below, info_name=name, parent=context)
        place = below
    place.make_context(context.info_name, words, parent=context.parent)


@pytest.mark.parametrize(("page", "command"), commands())
def test_a_command_in_the_documentation_exists(page: str, command: str) -> None:
    parse(command)
    assert page


def test_a_command_with_a_wrong_option_is_found() -> None:
    with pytest.raises(click.UsageError):
        parse("dejaq peek reminders --colour red")


MENTION = re.compile(r"`dejaq ([a-z][^`\n]*)`|^(?: {4})?dejaq ([a-z].*)$", re.MULTILINE)
"""A command in the text, or in a block that is not of `console`; arguments may be left out."""


def unknown_parts(mentioned: str) -> list[str]:
    """Commands and options of a mentioned command that there are not."""
    from dejaqueue.cli.main import main

    place: click.Command = main
    words = re.sub(r"#.*|[…\[\]]", "", mentioned).split()
    while isinstance(place, click.Group) and words and re.fullmatch("[a-z-]+", words[0]):
        below = place.get_command(click.Context(place), words[0])
        if below is None:
            return [words[0]]
        place = below
        words.pop(0)
    params = [*main.params, *place.params]
    known = {"--help", *(name for one in params for name in (*one.opts, *one.secondary_opts))}
    options = (word.split("=")[0].rstrip(".,;:)") for word in words if word.startswith("--"))
    return [option for option in options if option not in known]


def test_what_pages_say_of_commands_exists() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    found = {
        (page.name, match[0]): unknown
        for page in pages
        for match in MENTION.finditer(page.read_text(encoding="utf-8"))
        if (unknown := unknown_parts(match[1] or match[2]))
    }
    assert found == {}


def test_a_command_that_is_mentioned_and_does_not_exist_is_found() -> None:
    assert unknown_parts("repair clock --apply # of all topics") == []
    assert unknown_parts("repair clocks") == ["clocks"]
    assert unknown_parts("key create --help") == []
    assert unknown_parts("send reminders --colour red") == ["--colour"]
