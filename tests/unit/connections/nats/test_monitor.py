import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from dejaqueue.connections.nats.monitor import Copy, HttpMonitor, read_report

TOLD = {
    "server_id": "run-1",
    "config": {"sync_always": True},
    "meta_cluster": {"leader": "b"},
    "account_details": [
        {
            "stream_detail": [
                {
                    "name": "x",
                    "state": {
                        "messages": 8, "first_seq": 1, "last_seq": 10, "num_deleted": 2, "bytes": 99
                    },
                    "cluster": {
                        "leader": "a",
                        "replicas": [{"name": "b", "lag": 3}, {"name": "c", "current": True}],
                    },
                }
            ]
        },
        {},
    ],
}  # fmt: skip


def test_a_report_says_what_a_server_has() -> None:
    report = read_report("a", {"version": "2.15.1"}, TOLD)
    assert report.copies == (Copy("a", "x", 8, 1, 10, 99, "a", ("b", "c"), (3, 0)),)
    assert (report.version, report.sync_always, report.is_off) == ("2.15.1", True, False)
    assert (report.meta_leader, report.run) == ("b", "run-1")


def test_a_follower_knows_of_no_other() -> None:
    (copy,) = read_report("b", {}, TOLD).copies
    assert (copy.leader, copy.followers) == ("a", ())


def test_jetstream_that_is_off_is_told() -> None:
    assert read_report("a", {}, {"disabled": True}).is_off
    assert read_report("a", {}, {}).is_off


class _Told(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        told = {"server_name": "a"} if self.path == "/varz" else TOLD
        content = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def test_ports_that_do_not_answer_are_left_out() -> None:
    with HTTPServer(("127.0.0.1", 0), _Told) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        place = f"127.0.0.1:{server.server_port}"
        reports = HttpMonitor(["127.0.0.1:1", place]).reports()
        server.shutdown()
        thread.join()
    assert [report.server for report in reports] == ["a"]
