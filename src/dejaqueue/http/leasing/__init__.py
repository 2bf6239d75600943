"""Leasing over HTTP: requests that wait for messages share consumers of the broker.

    pool.py       LeasePool: a shared session for each topic and equal options
    session.py    SharedSession: one consumer, and the requests that wait on it
    waiter.py     Waiter: one request; Delivered, Taken: what it gets

Room: http. On the event loop but for what workers call, and one thread that reads payloads.
See: broker/topic/session.py for credit; docs/guides/http.md.
"""
