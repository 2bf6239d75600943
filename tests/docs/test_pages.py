"""Covers: links lead somewhere, every page can be found, generated parts are fresh, paths exist.

Not covered: that the words are true; snippets and rule tests do what a machine can.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dejaqueue.settings import BrokerSettings
from dev.reaper import marks
from tests.patience import PATIENCE_SECONDS
from tests.tidy import house_rules as house

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path for path in map(Path, house.tracked_files()) if path.suffix == ".md")
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
PATH_WORD = re.compile(r"\b(?:docs|tests|scripts|bench|src)/[\w./-]+\.(?:md|py|sh|json|svg)\b")


def anchors(text: str) -> set[str]:
    """What a forge makes of the headings."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        words = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


def links(page: Path) -> list[str]:
    """Targets within the project, of every link of a page."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    found = [match["target"] for match in LINK.finditer(text)]
    return [target for target in found if not target.startswith(("http:", "https:", "mailto:"))]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        place = (ROOT / page.parent / path).resolve() if path else ROOT / page
        text = place.read_text(encoding="utf-8") if place.is_file() else ""
        if not place.exists() or (anchor and anchor not in anchors(text)):
            broken.append(target)
    assert broken == []


def test_every_page_of_the_documentation_can_be_found() -> None:
    reached: set[Path] = set()
    waiting = [Path("README.md")]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for target in links(page):
            place = (ROOT / page.parent / target.partition("#")[0]).resolve()
            if place.is_dir():
                waiting += [path.relative_to(ROOT) for path in place.glob("*.md")]
            elif place.suffix == ".md" and place.is_relative_to(ROOT):
                waiting.append(place.relative_to(ROOT))
    lost = [str(page) for page in PAGES if str(page).startswith("docs/") and page not in reached]
    assert lost == []


def test_generated_parts_are_fresh() -> None:
    found = subprocess.run(
        [sys.executable, str(ROOT / "scripts/generate_reference.py"), "--check"],
        env=marks() | {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_files_that_are_named_exist() -> None:
    missing = []
    for path in house.tracked_files():
        if not path.endswith((".py", ".md", ".toml")) or path.startswith(("tests/tidy/", "bench/")):
            continue
        named = PATH_WORD.findall(house.read(path).text)
        beside = (ROOT, (ROOT / path).parent)  # a project within this one has its own src
        missing += [
            f"{path}: {name}" for name in named if not any((at / name).exists() for at in beside)
        ]
    assert not missing, "\n" + "\n".join(missing)


FILE_WORD = re.compile(
    r"(?<![\w./:*{}<>-])(?:\.\.\./)?((?:[\w.-]+/)*[\w-]+"
    r"\.(?:py|md|sh|json|svg|toml|ya?ml|go|java|txt|cfg|proto|html))\b(?![\w/*.(])"
)
WRITTEN_BY_PROGRAMS = {
    "audit.html",
    "backup.json",
    "cassandra.yaml",
    "dejaq-data/facts.json",
    "facts.json",
    "keys.json",
    "llms.txt",
    "nats.go",
    "restore.json",
    "shards.json",
    "people.csv",
}
"""Files that a page names because somebody has or gets them, not because they are here."""


def endings(paths: list[str]) -> set[str]:
    """Every way to name these files: with all folders before the name, or with the last few."""
    found = set()
    for path in paths:
        parts = path.split("/")
        found |= {"/".join(parts[first:]) for first in range(len(parts))}
    return found


def files_named(text: str) -> list[str]:
    """The files that a text names. Not what has a place to fill in (NAME.py), nor what links do."""
    words = FILE_WORD.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    words = [word for word in words if not word.startswith("../")]
    return [word for word in words if not Path(word).stem.isupper() or word.endswith(".md")]


def test_every_file_that_a_page_or_a_door_plate_names_exists() -> None:
    tracked = house.tracked_files()
    known = endings(tracked) | WRITTEN_BY_PROGRAMS
    missing = []
    for path in tracked:
        if path.endswith(".md"):
            text = house.read(path).text
        elif path.endswith(".py"):
            text = ast.get_docstring(ast.parse(house.read(path).text)) or ""
        else:
            continue
        missing += [f"{path}: {name}" for name in files_named(text) if name not in known]
    assert not missing, "\n" + "\n".join(missing)


def test_a_file_that_is_named_and_is_not_there_is_found() -> None:
    text = "See broker/gone.py, `worker.py`; https://a.org/b.json, NAME.py and *.py are none."
    assert files_named(text) == ["broker/gone.py", "worker.py"]
    assert "broker/gone.py" not in endings(house.tracked_files())


def test_every_setting_that_a_page_names_exists() -> None:
    fields = BrokerSettings.model_fields
    groups = {name: getattr(field.annotation, "model_fields", {}) for name, field in fields.items()}
    strange = []
    for page in PAGES:
        # A file of this name (`cluster.txt`) and a module's function (`clock.wait_until`) are none.
        text = (ROOT / page).read_text(encoding="utf-8")
        named = re.findall(r"`([a-z_]+)\.([a-z_]+)(?: = [^`]*)?`", text)
        strange += [
            f"{page}: {group}.{name}"
            for group, name in named
            if groups.get(group) and name not in groups[group] and name not in NO_SETTINGS
        ]
    assert strange == []


NO_SETTINGS = {"py", "txt", "wait_until"}


AGES_BADLY = re.compile(
    r"in this version|not yet implemented|cannot be changed later|this version \w+", re.I
)


def test_no_page_speaks_of_the_day_it_was_written() -> None:
    # Such a sentence is true once, and nobody looks at it again when it no longer is.
    found = []
    for path in house.tracked_files():
        if path.startswith("docs/adr/") or path in ("CHANGELOG.md", "tests/docs/test_pages.py"):
            continue
        if path.endswith((".md", ".py", ".toml", ".sh", ".go", ".java", ".yml", ".html")):
            text = house.read(path).text
            found += [f"{path}: {match[0]}" for match in AGES_BADLY.finditer(text)]
    assert not found, "\n" + "\n".join(found)


def test_the_glossary_names_every_word_that_is_banned() -> None:
    glossary = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")
    banned = glossary.partition("## Words that are not used")[2]
    words = {"job", "item", "event", "queue", "tube", "channel", "lock", "visibility"}
    words |= {"handler", "manager", "helper", "utils", "common", "info", "data", "process"}
    assert [word for word in sorted(words) if word not in banned] == []
    singular = {word.removesuffix("s") for word in house.BANNED_PARTS | house.BANNED_WHOLE}
    assert {"job", "tube", "visibility", "manager", "handler"} <= singular


def test_the_changelog_has_the_version() -> None:
    from dejaqueue import __version__

    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_metric_is_documented() -> None:
    import dejaqueue

    text = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`([a-z0-9_]+)`", text))
    with dejaqueue.open("memory:") as queue:
        queue.create_topic("ticks")
        queue.send("ticks", b"", delay=3_600)
        with queue.consume("ticks"):
            stats = queue.stats()
            answer = queue._action("stats", {})
    ticks = stats.topics["ticks"]
    found = {*stats, *ticks, *ticks.partitions[0], *ticks.consumers[0]}
    told = answer["topics"]["ticks"]
    said = {*answer, *told, *told["partitions"][0], *told["consumers"][0]}
    assert sorted(said - found) == [], "what the broker says and the client leaves out"
    assert len(found) > 20
    assert sorted(found - documented) == []


def test_every_target_that_is_promised_has_a_rule() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    rules = set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))
    lists = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    promised = {target for line in lists for target in line.split()}
    for page in PAGES:
        written = (ROOT / page).read_text(encoding="utf-8")
        promised.update(re.findall(r"`make ([a-z-]+)", written))
        promised.update(re.findall(r"^(?:\$ | {4})make ([a-z-]+)", written, re.MULTILINE))
    assert "demo-cluster" in promised
    assert sorted(promised - rules) == []
