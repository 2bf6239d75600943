"""An erasure whose broker is killed in the middle, where the journals are on a server.

Here: Redis. Not here: segments (test_erasure_kill.py); what is found, and other servers
(tests/integration/test_erasure_on_servers.py).
"""

from __future__ import annotations

from pathlib import Path

import dejaqueue
from tests.crash.broker_process import BrokerProcess
from tests.crash.test_erasure_kill import (
    KEPT,
    MARKER,
    check_kept,
    files_with,
    kill_in_erasures,
    make_topics,
    send_kept,
    send_marked,
    wait_for_letter,
)
from tests.integration.erasure_servers import on_the_server
from tests.record_servers import RedisServer, redis_program


def test_an_erasure_that_is_killed_is_done_by_the_next_one__on_redis(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    redis = RedisServer(redis_program(), tmp_path / "server")
    settings = {
        "journal__mirror": tmp_path / "mirror",
        "journal__snapshot_entries": 60,
        "history__directory": tmp_path / "history",
        "history__roll_ms": 200,
        "payloads__url": tmp_path / "payloads",
        "payloads__inline_bytes_max": 4_096,
    }
    roots = [tmp_path / name for name in ("mirror", "history", "payloads")]
    broker = BrokerProcess(redis.url, tmp_path / "log", **settings)
    broker.start()
    try:
        with dejaqueue.Client(broker.url) as client:
            make_topics(client)
            send_kept(client, 0, 200)
            send_marked(client)
            wait_for_letter(client)
            send_kept(client, 200, KEPT)
        assert any(name.startswith("orders ") for name in on_the_server(redis.url, MARKER))
        kill_in_erasures(broker)
        with dejaqueue.Client(broker.url) as client:
            client.erase("orders", group=f"{MARKER}-group")
            assert on_the_server(redis.url, MARKER) == []
            assert files_with(MARKER, *roots) == []
            check_kept(client)
        assert broker.stop() == 0
        assert on_the_server(redis.url, MARKER) == []
    finally:
        broker.kill()
        redis.kill()
