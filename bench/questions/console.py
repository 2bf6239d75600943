"""What does the console cost, and how fast is it, on many scheduled messages over 200 topics?

- `fill`: the messages (`--messages`) are sent, one topic of them with CANCELLED, or a quarter.
- `page_…_p95`: a page at the broker, asked for again and again; `page_p95`: the slowest of them.
- `paint_…`: milliseconds until a page first shows something in headless Chromium that has nothing
  of it yet, the longest of some rounds; `first_paint`: the slowest of these pages.
- `preview_p95`: a stretch of the chart is selected: how many, and some of them.
- `cancel`: seconds from the click until all in the stretch of the largest topic are cancelled;
  `cancel_looks`: how often the page that waits was told how far it is.
- `consoles_10`: processor time of the broker while ten overviews are open, less the same without.
- `late_p99`, `late_beside_p99`: lateness of 10,000 messages a second, without and beside these ten.
- `transfer`: bytes of the overview and all that it loads, packed as browsers ask for it.
"""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from bench.load import DAY_MS, HOUR_MS, random_load
from bench.machine import processor_seconds
from bench.percentiles import percentile, spread
from bench.questions.lateness import dejaq_batches
from bench.registry import available
from bench.results import Outcome, Row
from bench.systems.system import Plan

QUESTION = "console"
TOPICS, QUICK_TOPICS = 200, 8
CANCELLED = 1_000_000
"""Messages of the topic whose stretch is cancelled, or a quarter of all, if these are fewer."""
ROUNDS, QUICK_ROUNDS = 40, 3
CONSOLES = 10
OPEN_SECONDS = 30.0
TURNS = 3
"""Of ten consoles and none; what is shown is the median."""
PAINTS, QUICK_PAINTS = 5, 1
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FILL_ROWS = 1_000_000
FILL_SECONDS_MAX = 3_600.0
_LOOK_SECONDS = 0.1
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]"
_WORK_SECONDS_MAX = 120.0

Report = Callable[[str], None]


class Viewer:
    """One browser without scripts: cookies, tokens, packed answers.

    Attributes:
        taken_bytes: of all answers, as they came over the wire.
    """

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        assert place.hostname is not None
        self._connection = http.client.HTTPConnection(place.hostname, place.port, timeout=120)
        self._headers = {"User-Agent": "Mozilla/5.0 (bench)", "Accept-Encoding": "gzip"}
        self.taken_bytes = 0

    def get(self, path: str) -> bytes:
        """An answer as it came. Raises AssertionError: it says no."""
        return self._ask("GET", path, None)

    def text(self, path: str) -> str:
        """A page, unpacked."""
        kept, self._headers["Accept-Encoding"] = self._headers["Accept-Encoding"], "identity"
        found = self.get(path).decode()
        self._headers["Accept-Encoding"] = kept
        return found

    def post(self, path: str, **form: object) -> str:
        """Where a form leads to."""
        token = re.search(r'name="csrf" content="(\w+)"', self.text("/console"))
        assert token is not None
        return self._ask("POST", path, urlencode({"csrf": token[1], **form})).decode()

    def stream(self, path: str) -> http.client.HTTPResponse:
        """An answer that goes on."""
        self._connection.request("GET", path, headers=self._headers)
        return self._connection.getresponse()

    def hang_up(self) -> None:
        """End what is read at this moment."""
        if self._connection.sock is not None:
            self._connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Forget the connection."""
        self._connection.close()

    def _ask(self, method: str, path: str, body: str | None) -> bytes:
        more = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
        self._connection.request(method, path, body, self._headers | more)
        answer = self._connection.getresponse()
        content = answer.read()
        self.taken_bytes += len(content)
        assert answer.status < 400, f"{method} {path}: {answer.status} {content[:200]!r}"
        if given := answer.getheader("set-cookie"):
            self._headers["Cookie"] = given.partition(";")[0]
        if answer.status == 303:
            return (answer.getheader("location") or "").encode()
        return content


def measure(plan: Plan, report: Report) -> Outcome:
    """Answer the question."""
    systems, left_out = available(("dejaq",))
    system: Any = systems[0]()
    system.start(plan.folder)
    try:
        outcome = Outcome(left_out=left_out)
        _Turn(system, plan, outcome, report).run()
    finally:
        system.stop()
    return outcome


class _Turn:
    """One run on one broker."""

    def __init__(self, system: Any, plan: Plan, outcome: Outcome, report: Report) -> None:
        self._system, self._plan, self._outcome, self._report = system, plan, outcome, report
        self._rounds = QUICK_ROUNDS if plan.quick else ROUNDS
        self._url = system.http_url
        self._topics: list[str] = []

    def run(self) -> None:
        """All of it."""
        self._fill()
        viewer = Viewer(self._url)
        self._transfer()
        self._pages(viewer)
        self._paint()
        self._preview(viewer)
        viewer.close()  # the broker would do so, while it is idle
        self._open()
        viewer = Viewer(self._url)
        self._cancel(viewer)
        viewer.close()

    def _row(self, case: str, value: float, unit: str) -> None:
        self._outcome.rows.append(Row(QUESTION, "dejaq", case, round(value, 3), unit))
        self._report(f"{case}: {value:,.3f} {unit}")

    def _fill(self) -> None:
        count = QUICK_TOPICS if self._plan.quick else TOPICS
        many = min(CANCELLED, self._plan.messages // 4)
        each = (self._plan.messages - many) // (count - 1)
        start, sent = time.perf_counter(), 0
        for number in range(count):
            topic = self._system.new_topic()
            self._topics.append(topic)
            left = each if number else many
            while left:
                rows = min(left, FILL_ROWS)
                now_ms = self._system.clock.now_ms()
                load = random_load(rows, now_ms + HOUR_MS, now_ms + HOUR_MS + 30 * DAY_MS, number)
                sent += self._system.fill(topic, load, FILL_SECONDS_MAX, 8_000).rows
                left -= rows
        self._row("fill", sent / (time.perf_counter() - start), "messages/s")
        self._outcome.series = {"messages": sent, "topics": count}

    def _transfer(self) -> None:
        """What a browser that has nothing yet takes for the overview."""
        viewer = Viewer(self._url)
        page = viewer.text("/console")
        viewer.taken_bytes = 0
        for path in ["/console", *re.findall(r'(?:href|src)="(/console/files/[^"]+)"', page)]:
            viewer.get(path)
        self._row("transfer", viewer.taken_bytes / 1_000, "KB")
        viewer.close()

    def _pages(self, viewer: Viewer) -> None:
        topic = self._topics[0]
        found = json.loads(viewer.text(f"/v1/topics/{topic}/messages?limit=1"))
        [message] = found["messages"]
        of = f"/console/topics/{quote(topic)}"
        pages = {
            "overview": "/console", "future": "/console/future?span=month",
            "counts": "/console/future/counts?span=month", "topic": of,
            "messages": f"{of}/messages", "message": f"{of}/messages/{message['id']}",
            "key": f"{of}/messages?key=nobody", "letters": f"{of}/letters", "cron": f"{of}/cron",
            "send": f"{of}/send", "checks": "/console/checks", "cluster": "/console/cluster",
            "audit": "/console/audit", "access": "/console/access",
        }  # fmt: skip
        worst = 0.0
        for name, path in pages.items():
            worst = max(worst, self._p95(f"page_{name}_p95", viewer, [path] * self._rounds))
        self._row("page_p95", worst, "ms")

    def _paint(self) -> None:
        """How soon a browser that comes for the first time shows something."""
        of = f"/console/topics/{quote(self._topics[0])}"
        pages = {
            "overview": "/console", "future": "/console/future?span=month", "topic": of,
            "messages": f"{of}/messages",
        }  # fmt: skip
        rounds = QUICK_PAINTS if self._plan.quick else PAINTS
        try:
            found = paints(self._url, pages, rounds)
        except LookupError as error:
            self._outcome.left_out.append(f"first_paint: {error}")
            return
        for name, taken_ms in found.items():
            self._outcome.spreads[f"dejaq/paint_{name}"] = spread(taken_ms)
            self._row(f"paint_{name}", max(taken_ms), "ms")
        self._row("first_paint", max(max(taken_ms) for taken_ms in found.values()), "ms")

    def _preview(self, viewer: Viewer) -> None:
        now_ms = self._system.clock.now_ms()
        paths = []
        for number in range(self._rounds):
            asked = {"topic": self._topics[0], "due_from": now_ms + number * HOUR_MS,
                     "due_to": now_ms + number * HOUR_MS + 15 * DAY_MS}  # fmt: skip
            paths.append(f"/console/future/selection?{urlencode(asked)}")
        self._p95("preview_p95", viewer, paths)

    def _p95(self, case: str, viewer: Viewer, paths: list[str]) -> float:
        taken_ms = []
        viewer.get(paths[0])
        for path in paths:
            start = time.perf_counter()
            viewer.get(path)
            taken_ms.append((time.perf_counter() - start) * 1_000)
        value = percentile(taken_ms, 95)
        self._outcome.spreads[f"dejaq/{case}"] = spread(taken_ms)
        self._row(case, value, "ms")
        return value

    def _open(self) -> None:
        """Ten consoles: what they take, and what they do to others; in turns with none."""
        seconds = self._plan.seconds if self._plan.quick else OPEN_SECONDS
        taken, late, late_beside = [], [], []
        for turn in range(1 if self._plan.quick else TURNS):
            alone = self._share(seconds)
            late.append(self._late_ms(2 * turn + 1))
            with open_consoles(self._url, CONSOLES):
                taken.append(max(0.0, self._share(seconds) - alone))
                late_beside.append(self._late_ms(2 * turn + 2))
        self._row("consoles_10", median(taken), "% of a core")
        self._row("late_p99", median(late), "ms")
        beside, ratio = median(late_beside), median(late_beside) / median(late)
        self._report(f"late_beside_p99: {beside:.3f} ms")
        self._outcome.rows.append(
            Row(QUESTION, "dejaq", "late_beside_p99", round(beside, 3), "ms", round(ratio, 3),
                "late_p99")
        )  # fmt: skip
        for case, values in (
            ("consoles_10", taken), ("late_p99", late), ("late_beside_p99", late_beside)
        ):  # fmt: skip
            self._outcome.spreads[f"dejaq/{case}"] = spread(values)

    def _late_ms(self, seed: int) -> float:
        """p99 of the lateness of 10,000 messages a second."""
        return percentile(dejaq_batches(self._system, self._plan, seed), 99) / 1_000

    def _share(self, seconds: float) -> float:
        before, start = processor_seconds(self._system.pid()), time.perf_counter()
        time.sleep(seconds)
        spent = processor_seconds(self._system.pid()) - before
        return 100 * spent / (time.perf_counter() - start)

    def _cancel(self, viewer: Viewer) -> None:
        topic, now_ms = self._topics[0], self._system.clock.now_ms()
        asked = {"topic": topic, "due_from": now_ms, "due_to": now_ms + 60 * DAY_MS}
        page = viewer.text(f"/console/future/selection?{urlencode(asked)}")
        found = re.search(r'data-count="(\d+)"', page)
        assert found is not None
        count, start, looks = int(found[1]), time.perf_counter(), 0
        form = asked | {"verb": "cancel", "shown": count, "typed": count}
        place = viewer.post("/console/future/change", **form)
        while "done." not in (page := viewer.text(place)):
            assert "It ended" not in page, page
            assert time.perf_counter() - start < _WORK_SECONDS_MAX, page
            looks += 1
            time.sleep(_LOOK_SECONDS)
        self._row("cancel", time.perf_counter() - start, "s")
        self._row("cancel_looks", looks, "times")
        assert self._system.count_live(topic) == 0
        self._outcome.series["cancelled"] = count


def paints(url: str, pages: dict[str, str], rounds: int) -> dict[str, list[float]]:
    """Milliseconds until each page first shows something, in a browser that has kept nothing.

    Raises:
        LookupError: Playwright or Chromium is not installed.
    """
    try:
        from playwright.sync_api import sync_playwright  # of the group dev
    except ModuleNotFoundError:
        raise LookupError("the Python package playwright is not installed") from None
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        raise LookupError("the program chromium is not installed")
    taken_ms: dict[str, list[float]] = {name: [] for name in pages}
    flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        # The first page of a browser pays for its start, which is not the console's.
        for name, path in [("", "/console/login"), *list(pages.items()) * rounds]:
            context = browser.new_context(base_url=url)  # no files, no cookies of the one before
            page = context.new_page()
            page.goto(path, wait_until="load")
            page.wait_for_function(f"() => {_PAINT} !== undefined")
            if name:
                taken_ms[name].append(float(page.evaluate(f"{_PAINT}.startTime")))
            context.close()
        browser.close()
    return taken_ms


@contextmanager
def open_consoles(url: str, count: int) -> Iterator[list[int]]:
    """So many overviews that are open; how many bytes each was told, when it is over."""
    viewers = [Viewer(url) for _ in range(count)]
    told = [0] * count
    threads = []
    for number, viewer in enumerate(viewers):
        seen = re.search(r'data-seen="([^"]+)"', viewer.text("/console"))
        assert seen is not None
        answer = viewer.stream(f"/console/live?seen={quote(seen[1])}")
        assert answer.status == 200, answer.status

        def read(number: int = number, answer: http.client.HTTPResponse = answer) -> None:
            try:
                while piece := answer.read1(65_536):
                    told[number] += len(piece)
            except (OSError, ValueError, http.client.HTTPException):
                return  # it was closed here

        threads.append(threading.Thread(target=read, daemon=True))
        threads[-1].start()
    try:
        yield told
    finally:
        for viewer in viewers:
            viewer.hang_up()  # which ends the reading
        for thread in threads:
            thread.join(5)
        for viewer in viewers:
            viewer.close()
