"""Real servers for tests and trials: each started on a free port, in a folder of its own.

    python -m dev.services postgresql        starts one, prints its URL, stops it at Ctrl-C

    from dev.services import start
    with start("postgresql") as service:
        service.url                          of an empty database
        service.kill(); service.start()      as after a power cut of the process
        service.pause(); service.resume()    there, but silent

Room: dev. A server is one file beside this one and one line in `registry.py`.
Holds: no fixed port; nothing is left behind; stopped by its process id.
"""

from dev.services.registry import NAMES, missing, start
from dev.services.service import Service, ServiceFailed

__all__ = ["NAMES", "Service", "ServiceFailed", "missing", "start"]
