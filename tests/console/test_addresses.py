"""Addresses and times: a selected stretch can be copied, a time is told to a finger.

Covered, besides: what will be late is said by the page of the future when it is opened.
"""

from __future__ import annotations

import re

from playwright.sync_api import expect

from dejaqueue import Client
from dejaqueue.model import Topic
from tests.console.conftest import PATIENCE_MS, Viewer
from tests.integration.access_fixture import Site

AT_MS = 1_900_000_000_000


def test_a_selected_stretch_is_in_the_address__and_what_will_be_late_is_told(
    viewer: Viewer, site: Site
) -> None:
    site.broker.create_topic(Topic("late"))
    with Client(f"dejaq://127.0.0.1:{site.flight.port}") as client:
        with client.producer("late") as producer:
            producer.send("x")
        with client.consume("late") as consumer:
            next(iter(consumer)).ack()
        with client.producer("late") as producer:
            for number in range(500):
                producer.send(str(number), due=AT_MS + 60_000)
    page = viewer.go(f"/future?topic=late&from={AT_MS}&to={AT_MS + 240_000}")
    expect(page.locator("#late .wrong")).to_contain_text("messages will be late, by up to")
    page.locator("#select [name=group]").fill("nobody")
    page.locator("#select button").click()
    expect(page.locator("#selection [data-count='0']")).to_be_attached(timeout=PATIENCE_MS)
    page.wait_for_url(re.compile("group=nobody"), timeout=PATIENCE_MS)
    copied = page.url
    page = viewer.go("")
    page.goto(copied)
    expect(page.locator("#select [name=group]")).to_have_value("nobody")
    expect(page.locator("#selection [data-count='0']")).to_be_attached(timeout=PATIENCE_MS)


def test_a_time_that_is_tapped_is_told_in_full(viewer: Viewer, site: Site) -> None:
    site.broker.create_topic(Topic("timed"))
    with (
        Client(f"dejaq://127.0.0.1:{site.flight.port}") as client,
        client.producer("timed") as producer,
    ):
        producer.send("x", due=AT_MS)
    page = viewer.go("/topics/timed/messages")
    expect(page.locator("#instant")).to_be_hidden()
    page.locator("tbody time").first.click()
    expect(page.locator("#instant")).to_contain_text("UTC")
    page.locator("h1").click()
    expect(page.locator("#instant")).to_be_hidden()
