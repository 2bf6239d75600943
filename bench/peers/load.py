"""A program that sends to a queue and takes from it, as lines of JSON on its input say.

Room: bench. Arguments: module of this folder, variant, URL. Prints `ready`; then for each line one
line of JSON on its output, until the input ends.

    {"do": "make" | "open" | "listen" | "send" | "pace" | "take" | "close", …} → {} | Said | Taken

A queue is given by the fields of Queue (peer.py), under `queue`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import asdict
from typing import Any

from bench.peers.coroutines import CoroutineLoad
from bench.peers.peer import AsyncPeer, Queue
from bench.peers.threads import ThreadLoad


def main() -> None:
    """Answer lines until there are no more."""
    module, variant, url = sys.argv[1:]
    peer = importlib.import_module(f"bench.peers.{module}").make_peer(url, variant)
    load: Any = CoroutineLoad(peer) if isinstance(peer, AsyncPeer) else ThreadLoad(peer)
    print("ready", flush=True)
    for line in sys.stdin:
        values = json.loads(line)
        if "queue" in values:
            delays_ms = tuple(values["queue"].pop("delays_ms"))
            values["queue"] = Queue(delays_ms=delays_ms, **values["queue"])
        said = getattr(load, values.pop("do"))(**values)
        print(json.dumps({} if said is None else asdict(said)), flush=True)
    sys.stdout.flush()
    os._exit(0)  # what clients leave running is no part of the figures


if __name__ == "__main__":
    main()
