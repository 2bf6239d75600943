"""`python -m dev.services NAME [setting=value …]`: start a server, print its URL, wait for Ctrl-C.

Room: dev.
"""

from __future__ import annotations

import signal
import sys

from dev.reaper import start_reaper
from dev.services import NAMES, missing, start


def main() -> int:
    """Start what the command line names."""
    start_reaper()
    names, given = sys.argv[1:2], sys.argv[2:]
    if not names or names[0] not in NAMES:
        print(f"usage: python -m dev.services {'|'.join(NAMES)} [setting=value …]", file=sys.stderr)
        return 2
    lacking = missing(names[0])
    if lacking:
        print(f"not installed: {lacking}; see scripts/install_servers.sh", file=sys.stderr)
        return 1
    settings = dict(one.split("=", 1) for one in given)
    with start(names[0], **settings) as service:
        # Not before the start: the server would inherit it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        print(service.url, flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0


if __name__ == "__main__":
    sys.exit(main())
