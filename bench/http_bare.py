"""A bare FastAPI application: one route that does nothing, served as DejaQ's are.

Room: bench. A program: prints `ready`, then its port; ends when its input does.
"""

from __future__ import annotations

import socket
import sys
import threading

import uvicorn
from fastapi import FastAPI

from dejaqueue.http.server import uvicorn_config

app = FastAPI()


@app.post("/nothing")
async def nothing() -> dict[str, str]:
    """Do nothing."""
    return {}


def main() -> None:
    """Serve until the input ends."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2_048)
    config = uvicorn_config(app)
    config.http = "httptools"  # without our bounds on connections: as bare as can be
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    print("ready", flush=True)
    print(listener.getsockname()[1], flush=True)
    sys.stdin.read()
    server.should_exit = True
    thread.join()


if __name__ == "__main__":
    main()
