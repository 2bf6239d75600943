"""NATS as DejaQ sees it: one connection with a loop of its own, its URL, and what servers report.

Room: connections. Knows no journal and no coordinator: both are built on this.
See: connection.py for calls, url.py for what a URL may say, monitor.py for the copies of streams.
"""
