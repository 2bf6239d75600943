"""A partition: its requests, their order, and what is leased to whom.

Room: broker. One worker's thread; knows the journal by the core alone (shard/core.py).
See: partition.py for a step, worker.py for who calls it.
"""
