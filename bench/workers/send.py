"""`python -m bench.workers.send '{"module": …}'`: a program that sends tasks, and says how many.

Room: bench. One process; one call after the other on each of its threads.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from typing import Any


def send_all(app: Any, said: dict[str, Any]) -> int:
    """Send `rows` calls of `task` on `senders` threads, or as many as fit in `seconds`.

    With `per_second` each is due at its time from `first_ms` on; else at once.
    """
    rows, dues_ms = said["rows"], None
    if said.get("per_second"):
        dues_ms = [said["first_ms"] + n * 1_000 // said["per_second"] for n in range(rows)]
    if said["senders"] > 1 and hasattr(app, "fill"):
        app.fill(said["task"], rows, dues_ms)
        return int(rows)
    if hasattr(app, "send_all"):
        return int(app.send_all(said["task"], rows, said["seconds"], said["senders"]))
    sent = [0] * said["senders"]
    end = time.monotonic() + said["seconds"]

    def run(index: int) -> None:
        for number in range(index, rows, len(sent)):
            app.send(said["task"], number, None if dues_ms is None else dues_ms[number])
            sent[index] += 1
            if time.monotonic() > end:
                return

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(sent))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(sent)


def main() -> None:
    """Send, as the argument says."""
    said = json.loads(sys.argv[1])
    app = importlib.import_module(said["module"])
    send_all(app, said | {"rows": 1, "senders": 1, "per_second": 0})  # connects
    start = time.perf_counter()
    sent = send_all(app, said)
    print(json.dumps({"sent": sent + 1, "seconds": time.perf_counter() - start}), flush=True)
    os._exit(0)  # what the queues leave running is no part of the figures


if __name__ == "__main__":
    main()
