"""The client library: what a user's program imports.

Room: client. Never imports broker, journal, coordinator or engine.
See: aio.py, the source; sync.py is generated from it (scripts/generate_sync_client.py).
"""
