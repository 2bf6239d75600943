"""A broker with keys and something in every corner, for tests that click: topics, dead letters,
cron entries, names that do harm where they are not escaped."""

from __future__ import annotations

from typing import Any

import httpx

from dejaqueue.model import Topic
from tests.console.scene import HARM
from tests.integration.access_fixture import CRON, MINE, Site, give_keys, make_topics
from tests.patience import until

HOUR_MS = 3_600_000
LETTERS = f"{MINE}.mails"


class Api:
    """The HTTP API with the key of `root`, to prepare and to look."""

    def __init__(self, site: Site) -> None:
        key = {"Authorization": f"Bearer {site.keys['root']}"}
        self.http = httpx.Client(base_url=site.http_url, headers=key, timeout=60, trust_env=False)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The answer to a call that succeeds."""
        answer = self.http.request(method, f"/v1{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def send(self, topic: str, **message: Any) -> str:
        """Send one; its id."""
        row = {"payload": "x", "delay_ms": HOUR_MS} | message
        return str(self.ask("POST", f"/topics/{topic}/messages", row)["id"])

    def message(self, topic: str, message_id: str) -> dict[str, Any] | None:
        """One as it is; None = it is not live."""
        answer = self.http.get(f"/v1/topics/{topic}/messages/{message_id}")
        return None if answer.status_code == 404 else dict(answer.json())

    def scheduled(self, topic: str) -> int:
        """How many wait."""
        return int(self.ask("GET", f"/topics/{topic}/stats")["scheduled"])

    def bury(self, topic: str, *reasons: str, **message: Any) -> None:
        """Have messages die, each for its reason; when they are dead letters, return."""
        for reason in reasons:
            self.send(topic, delay_ms=0, **message)
            taken = self.ask("POST", f"/topics/{topic}/lease", {"wait_ms": 60_000})["messages"]
            named = [{"id": one["id"], "attempt": one["attempt"]} for one in taken]
            body = {"messages": named, "reason": reason}
            self.ask("POST", f"/topics/{topic}/nack", body)
        until(lambda: len(self.letters(topic)) >= len(reasons), "dead letters")

    def letters(self, topic: str) -> list[dict[str, Any]]:
        """What has died."""
        answer = self.http.get(f"/v1/topics/{topic}.dead/dead-letters")
        return list(answer.json()["messages"]) if answer.is_success else []


def furnish(site: Site) -> Api:
    """Topics, keys, and something for each page."""
    make_topics(site.broker)
    site.broker.create_topic(Topic(LETTERS, max_attempts=1))
    give_keys(site)
    api = Api(site)
    api.send(MINE, key="a")
    api.bury(LETTERS, HARM, key=HARM)
    api.ask("PUT", f"/topics/{CRON}/cron/morning", {"cron": "0 9 * * *", "payload": "x"})
    return api


__all__ = ["CRON", "HARM", "HOUR_MS", "LETTERS", "MINE", "Api", "furnish"]
