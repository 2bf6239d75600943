"""Covers: the console in a cluster, through a broker that does not own the topic.

Not covered: nodes that are repaired or leave (tests/cluster).
"""

from __future__ import annotations

from contextlib import closing

from playwright.sync_api import Browser, expect

from dejaqueue.model import Topic
from tests.cluster.spread import SpreadCluster
from tests.console.conftest import Viewer
from tests.patience import until

LATER = "2999-01-01T00:00:00Z"


def test_a_broker_that_owns_nothing_has_the_whole_console(chrome: Browser) -> None:
    with SpreadCluster() as cluster:
        cluster.brokers["a"].create_topic(Topic("far"))
        with cluster.client() as client:  # whoever owns its slot begins to serve it with that
            client.send("far", b"first", delay=3_600)
        until(lambda: any(broker.serves("far") for broker in cluster.brokers.values()))
        [owner] = [name for name, broker in cluster.brokers.items() if broker.serves("far")]
        other = next(name for name in cluster.brokers if name != owner)
        with closing(Viewer(chrome, cluster.url(other))) as viewer:
            page = viewer.go("/topics/far/send")
            page.get_by_label("Payload", exact=True).fill("from afar")
            page.get_by_label("Due (ISO 8601 with a zone)").fill(LATER)
            page.get_by_role("button", name="Send", exact=True).click()
            expect(page.locator("pre").first).to_have_text("from afar")
            page = viewer.go("/topics/far")
            partitions = page.get_by_role("region", name="Partitions and their numbers")
            expect(partitions.get_by_role("cell", name=owner, exact=True)).to_be_visible()
            page.get_by_role("button", name="Pause", exact=True).click()
            expect(page.locator("main > p[role=status]")).to_contain_text("is paused")
            until(lambda: cluster.brokers[owner].topic("far").paused)
            page = viewer.go("/cluster")
            for name in cluster.brokers:
                expect(page.get_by_role("rowheader", name=name, exact=True)).to_be_visible()
            assert not cluster.brokers[other].serves("far")
            assert viewer.wrong == []
