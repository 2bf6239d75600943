"""What the pages of the tests show: topics of each kind, some with what does harm where it is not
escaped."""

from __future__ import annotations

import httpx

from dejaqueue.model import Topic, TopicKind
from tests.integration.access_fixture import Site

HARM = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)><svg onload=alert(3)>{{7*7}}"
MINUTE_MS = 60_000


def furnish(site: Site, count: int = 500) -> dict[str, str]:
    """Topics and messages; addresses below /console of each kind of page, by a name."""
    broker = site.broker
    for topic in (
        Topic("reminders", partitions=2),
        Topic("jobs", kind=TopicKind.FAIR, weights={"vip": 3}),
        Topic("reports", kind=TopicKind.CRON),
        Topic("mails", max_attempts=1),
    ):
        broker.create_topic(topic, exist_ok=True)
    with httpx.Client(base_url=site.http_url, timeout=60, trust_env=False) as http:
        rows = [
            {"payload": f'{{"n": {n}}}', "key": f"k{n}", "delay_ms": MINUTE_MS * (5 + n % 600)}
            for n in range(count)
        ]
        assert http.post("/v1/topics/reminders/messages", json={"messages": rows}).is_success
        harm = {
            "payload": HARM,
            "key": HARM,
            "group": HARM,
            "tags": [HARM[:60]],
            "headers": {HARM: HARM},
        }
        made = http.post("/v1/topics/jobs/messages", json=harm)
        assert made.is_success, made.text
        entry = {"cron": "0 9 * * *", "zone": "Europe/Berlin", "payload": HARM}
        assert http.put("/v1/topics/reports/cron/morning", json=entry).is_success
        http.post("/v1/topics/mails/messages", json={"payload": "x", "key": HARM})
        [leased] = http.post("/v1/topics/mails/lease", json={"wait_ms": 5_000}).json()["messages"]
        named = [{"id": leased["id"], "attempt": leased["attempt"]}]
        body = {"messages": named, "reason": HARM}
        assert http.post("/v1/topics/mails/nack", json=body).is_success
    return {
        "overview": "",
        "future": "/future?span=day",
        "topic": "/topics/jobs",
        "empty topic": "/topics/reports",
        "messages": "/topics/jobs/messages",
        "message": f"/topics/jobs/messages/{made.json()['id']}",
        "send": f"/topics/jobs/send?like={made.json()['id']}",
        "file": "/topics/jobs/rows",
        "letters": "/topics/mails/letters",
        "cron": "/topics/reports/cron",
        "checks": "/checks",
        "cluster": "/cluster",
        "audit": "/audit",
        "access": "/access",
        "not there": "/nowhere",
    }
