"""The synchronous client: what a program with threads calls.

Room: client; above all its other rooms but `_aio`. Every file but waiting.py is generated from the
file of the same name in `_aio`: change that one, then `make docs`.
See: scripts/generate_sync_client.py, and the test that compares (tests/unit/client/_sync).
"""
