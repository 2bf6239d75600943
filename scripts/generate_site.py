"""Write the pages of the documentation's site to build/site/pages, of which mkdocs makes the site
(`make site`).

    python scripts/generate_site.py

The repository's Markdown is the source, and its notebooks are, with what their cells show. A page
of the site has its text, and what a forge does is done here: links to other files lead to pages
that show them, headings get a forge's anchors. Beside those pages: the reference of the Python
library (mkdocstrings fills it in), of the HTTP API, and `llms.txt`, made of the navigation.

Room: scripts. Reads tracked files, mkdocs.yml and the application's OpenAPI document; writes
build/site/pages alone.
Holds: whatever a page links to is in the site; nothing depends on where the repository is
published.
See: mkdocs.yml, scripts/site.sh, scripts/http_reference.py;
docs/adr/0069-a-site-from-plain-markdown.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from http_reference import http_reference, openapi_document

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build/site/pages"
FENCE = re.compile(r"^ {0,3}(```+|~~~+)", re.MULTILINE)
LINK = re.compile(r"(?:\]\(|\b(?:src|srcset)=\")(?P<target>[^)\s\"]+)")
LANGUAGES = {
    ".go": "go", ".html": "html", ".java": "java", ".json": "json", ".proto": "proto", ".py":
    "python", ".sh": "bash", ".sql": "sql", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml",
}  # fmt: skip
NOTEBOOK = ".ipynb"
PICTURES = (".png", ".svg", ".jpg", ".gif")
FOLDERS_OF_PAGES = ("docs/", "examples/", "clients/")
ROOT_PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "STYLE.md")
LIBRARY = {
    "client": ("Client", "dejaqueue", "What programs send and consume messages with."),
    "results": (
        "Results of calls",
        "dejaqueue.client",
        "What calls of the client take and return.",
    ),
    "tasks": ("Tasks", "dejaqueue.tasks", "Functions that are sent, and workers that run them."),
    "outbox": (
        "Outbox",
        "dejaqueue.outbox",
        "Messages that count if a transaction of a database does.",
    ),
    "spark": ("Spark", "dejaqueue.spark", "What is called beside `spark.read` and `write`."),
    "testing": ("Testing", "dejaqueue.testing", "What programs are tested with."),
}
"""Pages of the library's reference: title, module, and what it is. A name is on one page alone."""
FIRST = ("Client", "open", "Tasks")
"""Names that a page begins with."""
IN_FULL = ("Guides", "Reference", "Concepts", "First steps")
"""Sections of the navigation whose pages llms-full.txt has; a decision or an internal page helps no
user.
"""


def tracked() -> list[str]:
    """All files that git knows, from the root."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [path for path in listed.stdout.split("\0") if path and (ROOT / path).exists()]


def text_of(path: str) -> str:
    """The Markdown of a page: its text, or that of a notebook's cells and what they show."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if not path.endswith(NOTEBOOK):
        return text
    blocks = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        blocks.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for shown in cell.get("outputs", []):
            lines = shown["text"] if "text" in shown else shown["data"]["text/plain"]
            blocks.append("```text\n" + "".join(lines).rstrip("\n") + "\n```")
    return "\n\n".join(blocks) + "\n"


# --- where a file of the repository is in the site ----------------------------------------------


def place_of(path: str) -> str:
    """The file under build/site/pages that shows a file, or a folder, of the repository."""
    if not path.endswith((".md", *PICTURES)):
        return f"project/{path}.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else f"project/{path}"


class Site:
    """What is in the site: pages of the repository, and what they link to.

    Attributes:
        files: of the repository that have a place in the site.
        folders: likewise, those that have no page of their own.
    """

    def __init__(self, paths: list[str]) -> None:
        self._tracked = set(paths)
        self.files = {path for path in paths if path.startswith(FOLDERS_OF_PAGES)}
        self.files = {path for path in self.files if path.endswith((".md", NOTEBOOK))}
        self.files |= set(ROOT_PAGES) & self._tracked
        self.folders: set[str] = set()
        waiting = sorted(self.files)
        while waiting:
            for linked in set(self._linked(waiting.pop())) & self._tracked - self.files:
                self.files.add(linked)
                waiting += [linked] if linked.endswith((".md", NOTEBOOK)) else []

    def _linked(self, page: str) -> Iterator[str]:
        for _, target in parts(text_of(page)):
            found = self.resolve(page, target.partition("#")[0]) if target else None
            if found is not None:
                yield found

    def resolve(self, page: str, target: str) -> str | None:
        """The file that a link of a page means; None if it leads elsewhere, or stays on the
        page.
        """
        if not target or ":" in target.partition("/")[0]:
            return None
        path = os.path.normpath(PurePosixPath(page).parent / target)
        if path in self._tracked:
            return path
        for name in ("README.md", "index.md"):
            if f"{path}/{name}" in self._tracked:
                return f"{path}/{name}"
        if any(one.startswith(f"{path}/") for one in self._tracked):
            self.folders.add(path)
            return f"{path}/index.md"
        raise SystemExit(
            f"generate_site.py: {page} links to {target}, which is not in the repository"
        )

    def link(self, page: str, target: str) -> str:
        """The target of a link as it is in the site."""
        path, mark, anchor = target.partition("#")
        found = self.resolve(page, path)
        if found is None:
            return target
        here = PurePosixPath(place_of(page)).parent
        return os.path.relpath(place_of(found), here) + mark + anchor


# --- the text of a page -------------------------------------------------------------------------


def parts(text: str) -> Iterator[tuple[str, str]]:
    """A page in pieces: what stands before a link's target, and the target; code is not looked
    into.
    """
    fenced = ""
    for line in text.splitlines(keepends=True):
        fence = FENCE.match(line)
        if fence and (not fenced or fence[1].startswith(fenced)):
            fenced = "" if fenced else fence[1]
        end = 0
        for found in LINK.finditer("" if fenced or line.startswith("    ") else line):
            yield line[end : found.start("target")], found["target"]
            end = found.end("target")
        yield line[end:], ""


def anchor_of(heading: str) -> str:
    """What a forge makes of a heading; tests/docs/test_pages.py knows it likewise."""
    words = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def with_anchors(text: str) -> str:
    """A page as Python's Markdown wants it: headings say their anchors, a list has an empty line
    before it, and what belongs to an item is set in by four."""
    lines: list[str] = []
    used: set[str] = set()
    fenced = ""
    inset = 0
    for line in text.splitlines():
        item = re.match(r"(?:[-*]|\d+\.) +", line) if not fenced else None
        if item:
            inset = len(item[0])
        elif inset and line.startswith(" " * inset):
            line = "    " + line[inset:]
        elif line and not fenced:
            inset = 0
        fence = re.match(r" {0,4}(```+|~~~+)", line)
        if fence and (not fenced or fence[1].startswith(fenced)):
            fenced = "" if fenced else fence[1]
        elif not fenced:
            heading = re.fullmatch(r"(#+ )(.+?)\s*", line)
            if heading:
                anchor = anchor_of(heading[2])
                again = sum(1 for one in used if re.fullmatch(re.escape(anchor) + r"(-\d+)?", one))
                anchor += f"-{again}" if anchor in used else ""
                used.add(anchor)
                line = f"{heading[1]}{heading[2]} {{ #{anchor} }}"
            elif re.match(r"([-*]|1\.) ", line) and lines and re.match(r"[^\s|*-]", lines[-1]):
                # Where a forge sees a list, Python's Markdown wants a line between; an item's own
                # text begins with a number or is set in.
                lines += [""] if not re.match(r"\d+\. ", lines[-1]) else []
        lines.append(line if fenced or line.startswith("    ") else without_references(line))
    return "\n".join(lines) + "\n"


def without_references(line: str) -> str:
    """A line whose `[a][b]` is no reference: our pages have none, but a setting's pattern may look
    like one.
    """
    pieces = re.split(r"(`+[^`]*`+)", line)
    return "".join(one if one.startswith("`") else one.replace("][", "]\\[") for one in pieces)


def page_text(site: Site, page: str) -> str:
    """A page of the repository as one of the site."""
    pieces = [before + site.link(page, target) for before, target in parts(text_of(page))]
    return with_anchors("".join(pieces))


def shown(path: str) -> str:
    """A page that shows a file that is no page."""
    text = (ROOT / path).read_text(encoding="utf-8")
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=2) + 1)
    language = LANGUAGES.get(Path(path).suffix, "text")
    return f"# {path}\n\n{fence if len(fence) > 2 else '```'}{language}\n{text.rstrip()}\n{fence}\n"


def title_of(text: str) -> str:
    """A page's first heading."""
    found = re.search(r"^# (.+?)(?: \{ #.*)?$", text, re.MULTILINE)
    return found[1] if found else "Untitled"


def folder_page(folder: str, paths: list[str]) -> str:
    """A page that lists the pages of a folder that has none."""
    rows = [
        f"- [{title_of((ROOT / path).read_text(encoding='utf-8'))}]({Path(path).name})"
        for path in sorted(paths)
        if str(Path(path).parent) == folder and path.endswith(".md") and "template" not in path
    ]
    return f"# {FOLDERS.get(folder, folder)}\n\n" + "\n".join(rows) + "\n"


FOLDERS = {"docs/adr": "Decisions"}


# --- references that are made -------------------------------------------------------------------


def library_pages() -> Iterator[tuple[str, str]]:
    """(place, text) of the library's reference, as mkdocstrings takes it."""
    import importlib

    rows, seen = [], set()
    for name, (title, module_name, what) in LIBRARY.items():
        module = importlib.import_module(module_name)
        sections = []
        for public in sorted(module.__all__, key=lambda name: name not in FIRST):
            thing = getattr(module, public)
            where = getattr(thing, "__module__", "")
            if not where.startswith("dejaqueue") or id(thing) in seen:
                continue
            seen.add(id(thing))
            sections.append(f"::: {where}.{thing.__qualname__}\n")
        place = f"library/{name}.md"
        rows.append(f"- [{title}]({name}.md): {what}")
        yield place, f"# {title}\n\n`{module_name}`: {what}\n\n" + "\n".join(sections)
    text = "Public names and their docstrings; the guides say what to do with them.\n\n"
    yield "library/index.md", f"# Python library\n\n{text}" + "\n".join(rows) + "\n"


# --- llms.txt -----------------------------------------------------------------------------------


def navigation() -> list[Any]:
    """The navigation, as mkdocs.yml has it."""
    found: list[Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    return found


def places(nav: Any) -> Iterator[str]:
    """All pages of a part of the navigation, in order."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for below in nav.values():
            yield from places(below)
    else:
        for below in nav:
            yield from places(below)


def summary(text: str) -> str:
    """The first sentence of a page that is prose."""
    body = re.sub(r"^```.*?^```$|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\s*\n", body):
        if re.match(r"[A-Z*`\[]", block.strip()):
            prose = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split()))
            return re.split(r"(?<=[.:?!]) (?=[A-Z`*])", prose)[0].rstrip(":")
    return ""


def language_model_files(pages: dict[str, str]) -> dict[str, str]:
    """llms.txt, which lists pages with a sentence each, and llms-full.txt, which has those that
    help users whole.
    """
    short = ["# DejaQ", "", f"> {summary(pages['index.md'])}", ""]
    full = []
    for section in navigation():
        [(title, below)] = section.items()
        short += [f"## {title}", ""]
        for place in places(below):
            text = pages[place]
            said = summary(text)
            short.append(f"- [{title_of(text)}]({place})" + (f": {said}" if said else ""))
            if title in IN_FULL:
                full.append(re.sub(r"^(#+ .*?) \{ #\S+ \}$", r"\1", text, flags=re.MULTILINE))
        short.append("")
    return {"llms.txt": "\n".join(short), "llms-full.txt": "\n\n".join(full)}


def main() -> None:
    """Write all pages anew."""
    paths = tracked()
    site = Site(paths)
    pages: dict[str, str] = {}
    pictures = []
    for path in sorted(site.files):
        if path.endswith((".md", NOTEBOOK)):
            pages[place_of(path)] = page_text(site, path)
        elif path.endswith(PICTURES):
            pictures.append(path)
        else:
            pages[place_of(path)] = shown(path)
    for folder in sorted(site.folders):
        pages[place_of(f"{folder}/index.md")] = folder_page(folder, paths)
    pages |= dict(library_pages())
    document = openapi_document()
    pages["reference/http-api.md"] = http_reference(document)
    files = language_model_files(pages)
    files["openapi.json"] = json.dumps(document, indent=1, sort_keys=True) + "\n"
    shutil.rmtree(PAGES, ignore_errors=True)
    for place, text in {**pages, **files}.items():
        target = PAGES / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    (PAGES / "assets").mkdir()
    shutil.copyfile(ROOT / "scripts/site.css", PAGES / "assets/site.css")
    for path in pictures:
        target = PAGES / place_of(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
    print(f"{len(pages)} pages for the site")


if __name__ == "__main__":
    main()
