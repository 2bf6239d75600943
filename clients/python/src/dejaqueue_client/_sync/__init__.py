"""The synchronous client, generated from `_aio`.

Room: client.
See: scripts/generate_sync_client.py.
"""
