"""The asynchronous client: the source of `_sync`.

Room: client.
See: scripts/generate_sync_client.py.
"""
