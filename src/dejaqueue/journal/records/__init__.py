"""Journals on servers that exist: numbered records at a backend, and a copy here to read from.

Room: journal. journal.py is written once; a backend is one file that keeps the port, interface.py.
Holds: nothing is acknowledged before the server said that it is durable.
See: docs/internals/writing-a-journal.md; docs/adr/0012-records-on-a-server-a-mirror-here.md.
"""
