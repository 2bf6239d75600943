"""A webhook is called again after growing waits, until its server answers; then it is put aside."""

import http.server
import logging
import threading
import urllib.error
import urllib.request
from datetime import timedelta

import dejaqueue
from dejaqueue.tasks import Rehearsal, Tasks
from dejaqueue.testing import VirtualClock

ANSWERS = {"/shop": [503, 503, 200], "/gone": [500] * 4}  # what each address answers, call by call


class Server(http.server.BaseHTTPRequestHandler):
    """Somebody else's server, which has its troubles."""

    def do_POST(self) -> None:
        self.send_response(ANSWERS[self.path].pop(0))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


logging.disable()  # each failure is logged with its traceback, which is no part of this page
clock = VirtualClock()  # a real program has the machine's time, and `dejaq worker` instead
server = http.server.HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
begin = clock.now()

with dejaqueue.open("memory:", clock=clock) as queue:
    app = Tasks(client=queue, clock=clock)

    @app.task(retries=3, backoff=10, timeout=5)
    def call(path: str) -> None:
        seconds = round((clock.now() - begin).total_seconds())
        address = f"http://127.0.0.1:{server.server_port}{path}"
        try:
            with urllib.request.urlopen(address, data=b"{}", timeout=5) as answer:
                print(f"{seconds:3} s {path} {answer.status}")
        except urllib.error.HTTPError as error:
            print(f"{seconds:3} s {path} {error.code}")
            error.close()
            raise

    call.send("/shop")
    call.send("/gone")
    worker = Rehearsal(app, clock)
    for _ in range(80):
        worker.advance(timedelta(seconds=1))
server.shutdown()
server.server_close()
