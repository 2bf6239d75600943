"""The asynchronous client: what a program with an event loop calls.

Room: client; above all its other rooms but `_sync`. Here is only what waits; what is sent and what
answers mean is in the modules above this folder, for both clients.
Holds: nothing here blocks the loop.
See: scripts/generate_sync_client.py, which makes `_sync` from these files; waiting.py, which has a
    counterpart there.
"""
