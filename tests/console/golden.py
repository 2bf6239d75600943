"""Pictures of pages as they should look, kept in git and compared pixel by pixel.

`python -m tests.console` writes them anew; look at the difference (`git diff` shows both pictures
in most viewers) before it is committed. They are half as wide as the pages, which keeps them small.
What differs from run to run is masked before a picture is taken: instants, numbers, charts. The
browser itself compares, so no library for pictures is needed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page

from tests.patience import until

FOLDER = Path(__file__).parent / "golden"
PAGES = (
    "overview", "future", "topic", "messages", "message", "send", "letters", "cron", "checks",
    "cluster", "audit", "access",
)  # fmt: skip
ALL_WAYS = ("overview", "future", "topic")
"""Pages that are kept light and dark, on a phone and at a desk; the others light at a desk and
dark on a phone, since a theme is colours and a width is places."""
WAYS: tuple[tuple[Literal["light", "dark"], int], ...] = (
    ("light", 1_440),
    ("dark", 390),
    ("dark", 1_440),
    ("light", 390),
)
SCALE = 0.5
HEIGHT_MAX = 1_600
"""Pixels of a page; the settings of a topic go on for much longer at the width of a phone."""
SHADES_MAX = 24
"""A pixel differs if a colour of it does by more, of 255."""
LOOKS_MAX, LOOK_MS, SAME = 20, 50, 2
DIFFERENT_MAX = 60
"""Pixels of a picture; a word of the bar that is missing is 200 and more."""

MASK = """() => {
  dispatchEvent(new Event("pagehide"));
  for (let timer = setTimeout(() => {}); timer > 0; timer--) clearTimeout(timer);
  for (const part of document.querySelectorAll("[data-part]")) part.removeAttribute("data-part");
  for (const item of document.querySelectorAll(".problems li:not(:has(a))")) item.remove();
  document.querySelector("[aria-label='Lines of the audit log'] tbody")?.replaceChildren();
  for (const time of document.querySelectorAll("time")) {
    time.removeAttribute("datetime");
    time.textContent = "in 5 min";
  }
  for (const cell of document.querySelectorAll("td, dd, .numbers dd"))
    if (/^[\\d—]/.test(cell.textContent.trim())) cell.textContent = "0";
  for (const field of document.querySelectorAll("input"))
    if (/^\\d{4}-/.test(field.value)) field.value = "2030-01-31T09:30:00.000Z";
  for (const drawn of document.querySelectorAll(".bars, .spark, #chart")) drawn.style.opacity = 0;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode;
    node.data = node.data
      .replace(/\\d{4}-\\d\\d-\\d\\d[ T][\\d:.]+( UTC|Z)?/g, "2030-01-31 09:30:00.000 UTC")
      .replace(/127\\.0\\.0\\.1:\\d+/g, "address").replace(/\\d[\\d,.]*/g, "0");
  }
}"""
"""Takes away what differs from run to run or from machine to machine (what the broker says of its
clock), and has nothing change any more: what the broker still said of a topic, when pictures took
long, put the times back."""

COMPARE = """async ([first, second, shades]) => {
  const pixels = async (text) => {
    const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes]));
    const wide = image.width, high = image.height;
    const pen = new OffscreenCanvas(wide, high).getContext("2d");
    pen.drawImage(image, 0, 0);
    return [wide, high, pen.getImageData(0, 0, wide, high).data];
  };
  const [wide, high, one] = await pixels(first), [w, h, other] = await pixels(second);
  if (wide !== w || high !== h) return `is ${w} x ${h} pixels, not ${wide} x ${high}`;
  let count = 0;
  for (let at = 0; at < one.length; at += 4)
    if ([0, 1, 2].some(c => Math.abs(one[at + c] - other[at + c]) > shades)) count++;
  return count;
}"""
_DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
_PROBE = """() => {
  const made = document.createElement("p");
  made.style = "position:absolute;white-space:nowrap";
  made.innerHTML = "Late by The quick brown fox 0 <code>code</code> <b>bold</b>";
  document.body.append(made);
  const wide = made.getBoundingClientRect().width;
  made.remove();
  return wide;
}"""


def taken(chrome: Browser, url: str, paths: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    """A picture of each page in each theme at each width, by its name."""
    context = chrome.new_context(base_url=url, device_scale_factor=SCALE, reduced_motion="reduce")
    page = context.new_page()
    until(lambda: _has_letters(page, paths), "a dead letter in its topic")
    for name in PAGES:
        page.goto(f"/console{paths[name]}", wait_until="load")
        page.evaluate("document.fonts.ready")
        if name == "future":
            page.locator("#legend li").first.wait_for()
        page.evaluate(MASK)
        for theme, wide in WAYS if name in ALL_WAYS else WAYS[:2]:
            page.emulate_media(color_scheme=theme)
            yield f"{name}-{theme}-{wide}.png", picture(page, wide)
    context.close()


def _has_letters(page: Page, paths: dict[str, str]) -> bool:
    """Dead letters go to their topic by themselves."""
    page.goto(f"/console{paths['letters']}")
    return page.get_by_role("button", name="Send back").count() > 0


def picture(page: Page, wide: int) -> bytes:
    """The page as it is at this width, once a few pictures in a row are the same: on a busy machine
    the first ones may be of a page that is being drawn, or of how it was before."""
    page.set_viewport_size({"width": wide, "height": 900})
    before, same = b"", 0
    for _ in range(LOOKS_MAX):
        page.wait_for_timeout(LOOK_MS)
        page.evaluate(_DRAWN)
        high = int(page.evaluate("document.documentElement.scrollHeight"))
        clip: Any = {"x": 0, "y": 0, "width": wide, "height": min(high, HEIGHT_MAX)}
        now = page.screenshot(full_page=True, clip=clip, animations="disabled", caret="hide")
        same = same + 1 if now == before else 0
        if same == SAME:
            break
        before = now
    return before


def difference(page: Page, kept: bytes, now: bytes) -> str:
    """What two pictures differ in, in words; "" = in no more than may be."""
    texts = [base64.b64encode(one).decode() for one in (kept, now)]
    told = page.evaluate(COMPARE, [*texts, SHADES_MAX])
    if isinstance(told, str):
        return told
    return "" if told <= DIFFERENT_MAX else f"{told} pixels differ"


def fonts_of(chrome: Browser, url: str) -> dict[str, Any]:
    """What tells whether pictures of here and of there can be compared."""
    page = chrome.new_page(base_url=url)
    page.goto("/console/checks", wait_until="load")
    wide = round(float(page.evaluate(_PROBE)), 1)
    page.close()
    return {"sentence_px": wide}


def write(chrome: Browser, url: str, paths: dict[str, str]) -> None:
    """Keep all pictures as they are now."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.png"):
        old.unlink()
    for name, content in taken(chrome, url, paths):
        (FOLDER / name).write_bytes(content)
    about = json.dumps(fonts_of(chrome, url), indent=1)
    (FOLDER / "about.json").write_text(about + "\n", encoding="utf-8")


def kept_fonts() -> Any:
    """As `fonts_of` was when the pictures were written."""
    return json.loads((FOLDER / "about.json").read_text(encoding="utf-8"))
