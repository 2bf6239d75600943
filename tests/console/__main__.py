"""Pictures of the console, all of them anew: `python -m tests.console`.

Those of the README go into docs/pictures, those that tests compare with into golden/.
"""

from __future__ import annotations

import random
from pathlib import Path

from httpx import post
from playwright.sync_api import expect, sync_playwright

from dejaqueue.model import Topic, TopicKind
from tests.console import golden, scene
from tests.console.conftest import FLAGS, Viewer
from tests.hostile import browser as chromium
from tests.integration.access_fixture import Site, running

PICTURES = Path(__file__).resolve().parents[2] / "docs/pictures"
HOUR_MS = 3_600_000


def furnish(site: Site, seed: int = 1) -> None:
    """Some topics whose days have rush hours."""
    rolls = random.Random(seed)
    for name, kind, count in (
        ("reminders", TopicKind.TIMELINE, 9_000), ("mails", TopicKind.TIMELINE, 6_000),
        ("invoices", TopicKind.PRIORITY, 3_000),
    ):  # fmt: skip
        site.broker.create_topic(Topic(name, kind=kind, partitions=2))
        rushes = [rolls.uniform(1, 23) for _ in range(4)]
        rows = [
            {
                "payload": "x",
                "key": f"{name}-{n}",
                "delay_ms": int(max(0.1, rolls.gauss(rolls.choice(rushes), 1.2)) * HOUR_MS),
            }
            for n in range(count)
        ]
        url = f"{site.http_url}/v1/topics/{name}/messages"
        assert post(url, json={"messages": rows}, timeout=60, trust_env=False).is_success


def main() -> None:
    """Take them, light and dark."""
    program = chromium.program()
    assert program is not None, "Chromium is not installed (scripts/install_servers.sh)"
    with running() as site, sync_playwright() as playwright:
        furnish(site)
        chrome = playwright.chromium.launch(executable_path=program, args=FLAGS)
        for theme in ("light", "dark"):
            viewer = Viewer(chrome, site.http_url, dark=theme == "dark", wide=1_200)
            page = viewer.go("/future?span=day")
            expect(page.locator("#about-chart")).to_contain_text("messages from")
            page.screenshot(path=PICTURES / f"console-{theme}.png")
            viewer.close()
        with running() as other:
            golden.write(chrome, other.http_url, scene.furnish(other))
        chrome.close()


if __name__ == "__main__":
    main()
