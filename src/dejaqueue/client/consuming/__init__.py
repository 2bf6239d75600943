"""Consuming: a stream of deliveries, what the client holds until it is due, leases and settles.

Room: client. Knows no event loop: `_aio` and `_sync` wait for what happens here.
Holds: nothing is handed over before it is due by the broker's clock (rule 2), nor after its lease
    has ended (rule 4).
See: consume_core.py, where the threads meet; holding.py for due times; clock_offset.py for the
    broker's clock.
"""
