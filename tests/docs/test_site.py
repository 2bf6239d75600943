"""Covers: the documentation's site is built without a warning, every link of it leads somewhere,
nothing is fetched from elsewhere, a reader finds a page by a word; the lists that are made of the
navigation and of the API are whole.

Not covered: that the words are true (test_snippets.py, tests/rules), how it looks.
"""

from __future__ import annotations

import functools
import http.server
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
import yaml

from dev.reaper import marks
from tests.hostile import browser as chromium
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "build/site/html"
PAGES = ROOT / "build/site/pages"
HOME = "http://site.invalid/"
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "srcset", "object": "data"}
"""Tags by which a browser fetches something, and the attribute that says what."""


@pytest.fixture(scope="module")
def built() -> Path:
    """The site, built."""
    if not (ROOT / "build/site/tools/.installed").exists():
        pytest.skip("not installed: mkdocs (scripts/install_site.sh)")
    made = subprocess.run(
        [str(ROOT / "scripts/site.sh")],
        env=marks() | {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return HTML


class Document(HTMLParser):
    """A page: what it links to, what it has a browser fetch, the anchors it has.

    Attributes:
        links, fetched: as they are written.
        anchors: ids and names.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.fetched.append(given["href"])
        elif LOADS.get(tag, "") in given:
            self.fetched.append(given[LOADS[tag]])


def documents(place: Path) -> dict[str, Document]:
    """Every page by its address, as HOME has it."""
    found = {}
    for path in place.rglob("*.html"):
        address = HOME + path.relative_to(place).as_posix().removesuffix("index.html")
        found[address] = Document(path.read_text(encoding="utf-8"))
    return found


def broken_links(place: Path, pages: dict[str, Document]) -> list[str]:
    """Links within the site that lead nowhere; a missing page's own are not looked at: 404.html has
    no place.
    """
    broken = []
    for address, page in pages.items():
        for target in [] if address.endswith("/404.html") else [*page.links, *page.fetched]:
            parts = urlsplit(urljoin(address, target))
            if parts.netloc != urlsplit(HOME).netloc:
                continue
            path = unquote(parts.path)
            there = pages.get(HOME + path.lstrip("/"))
            if (there is None and not (place / path.lstrip("/")).is_file()) or (
                there is not None
                and parts.fragment
                and unquote(parts.fragment) not in there.anchors
            ):
                broken.append(f"{address}: {target}")
    return broken


def test_every_link_of_the_site_leads_somewhere(built: Path) -> None:
    pages = documents(built)
    assert len(pages) > 100
    assert broken_links(built, pages) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    text = '<a href="../gone/">1</a><a href="#here">2</a><a href="#there">3</a><p id="here"></p>'
    (tmp_path / "page").mkdir()
    (tmp_path / "page/index.html").write_text(text, encoding="utf-8")
    broken = broken_links(tmp_path, documents(tmp_path))
    assert broken == [f"{HOME}page/: ../gone/", f"{HOME}page/: #there"]


def test_no_page_has_anything_fetched_from_elsewhere(built: Path) -> None:
    foreign = {
        urlsplit(urljoin(address, target)).netloc
        for address, page in documents(built).items()
        for target in page.fetched
    }
    assert foreign == {urlsplit(HOME).netloc}
    for sheet in built.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", text) == [], sheet


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that says nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        """Say nothing."""


@pytest.fixture
def served(built: Path) -> Iterator[str]:
    """The address of the site on this machine."""
    serve = functools.partial(Quiet, directory=str(built))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        thread = threading.Thread(target=server.serve_forever, name="site", daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


def test_a_reader_finds_a_page_by_a_word__and_the_browser_asks_nobody_else(served: str) -> None:
    from playwright.sync_api import expect, sync_playwright

    program = chromium.program()
    if program is None:
        pytest.skip("not installed: chromium (scripts/install_servers.sh)")
    elsewhere: list[str] = []
    patience_ms = PATIENCE_SECONDS * 1_000
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        chrome = playwright.chromium.launch(executable_path=program, args=flags)
        page = chrome.new_page()
        page.set_default_timeout(patience_ms)
        page.on(
            "request",
            lambda one: elsewhere.append(one.url) if not one.url.startswith(served) else None,
        )
        page.goto(served)
        page.locator("input.md-search__input").first.fill("visibility")
        assert page.get_by_role("dialog", name="Search").count() == 1
        results = page.locator(".md-search-result__link")
        expect(results.first).to_be_visible(timeout=patience_ms)
        assert any("glossary" in (one.get_attribute("href") or "") for one in results.all())
        page.goto(served + "library/client/")
        assert page.locator("h3#dejaqueue\\.client\\._sync\\.client\\.Client\\.send").count() == 1
        chrome.close()
    assert elsewhere == []


def test_the_library_and_the_api_are_in_it_whole(built: Path) -> None:
    import dejaqueue
    import dejaqueue.tasks
    from dejaqueue.access.routes import ROUTES

    anchors = {
        anchor
        for place in (built / "library").rglob("*.html")
        for anchor in Document(place.read_text(encoding="utf-8")).anchors
    }
    shown = {anchor.rpartition(".")[2] for anchor in anchors}
    names = {*dejaqueue.__all__, *dejaqueue.tasks.__all__} - {"__version__"}
    assert names - shown == set()
    text = (PAGES / "reference/http-api.md").read_text(encoding="utf-8")
    document = json.loads((built / "openapi.json").read_text(encoding="utf-8"))
    operations = {
        f"{method.upper()} {path}" for path, one in document["paths"].items() for method in one
    }
    assert {one for one in operations if f"### `{one}`\n" not in text} == set()
    assert {f"{one.method} {one.path}" for one in ROUTES.values()} & operations


def nav_places(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for below in nav.values():
            yield from nav_places(below)
    elif isinstance(nav, list):
        for below in nav:
            yield from nav_places(below)


NAVIGATION = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]


def test_the_list_for_language_models_has_every_page_of_the_navigation(built: Path) -> None:
    listed = (built / "llms.txt").read_text(encoding="utf-8")
    places = re.findall(r"^- \[[^\n]+?\]\((\S+?\.md)\)", listed, re.MULTILINE)
    assert places == list(nav_places(NAVIGATION))
    assert all((built / place).is_file() for place in places)
    assert listed.startswith("# DejaQ\n\n> A message queue")
    full = (built / "llms-full.txt").read_text(encoding="utf-8")
    for place in ("guides/spark.md", "reference/semantics.md"):
        title = (ROOT / "docs" / place).read_text(encoding="utf-8").partition("\n")[0]
        assert f"{title}\n" in full


def test_every_page_of_the_documentation_is_in_the_navigation() -> None:
    # The build says so, too, but not everybody has what builds it.
    places = list(nav_places(NAVIGATION))
    assert len(places) == len(set(places))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {one for one in pages if not one.startswith("adr/")} - set(places) == set()


READERS = re.compile(r"^### (.+?)\n(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)


def test_the_start_page_has_five_pages_for_each_reader() -> None:
    text = (ROOT / "docs/index.md").read_text(encoding="utf-8").partition("## Who are you?")[2]
    readers = dict(READERS.findall(text.partition("\n## ")[0]))
    assert len(readers) == 4
    for reader, pages in readers.items():
        assert len(re.findall(r"^\d\. .*\]\(", pages, re.MULTILINE)) == 5, reader
