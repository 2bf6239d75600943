"""DOQ's gRPC API on a port of its own: the service `queue.DOQ`, its 16 calls.

Room: http. doq.proto says what goes over the wire; protocol.py makes messages of it, calls.py and
streams.py do what they ask for with what DOQ's HTTP API has, statuses.py says what is refused,
server.py has the port. All of it on the event loop of the HTTP server, so that calls of both come
together at a partition.
See: docs/guides/moving-from-doq.md; ADR 49. Needs the extra `doq`.
"""
