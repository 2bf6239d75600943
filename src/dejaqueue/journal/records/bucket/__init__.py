"""Records in a bucket: objects of an object store, each stored on condition that there is none.

Room: journal, one backend.
Holds: what keeps two owners apart is the store's conditional PUT, and nothing else.
See: docs/adr/0080-a-journal-in-a-bucket.md; connections/bucket.py, the port beneath.
"""
