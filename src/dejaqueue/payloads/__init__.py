"""Payloads that are kept apart from their messages: in a directory, or in an object store.

Room: payloads. Knows buckets, names and bytes; no topics, no broker.
Holds: what is read back is what was stored, or an error that names it; nothing is stored under a
name twice with different content.
See: broker/payloads, which says what goes here; schema/references.py; docs/adr/0068.
"""
