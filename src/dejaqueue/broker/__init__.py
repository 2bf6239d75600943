"""The shell around the engine: partition workers, dispatch, topics, backpressure.

Room: broker. Threads, time and journals meet the pure engine here; no sockets.
See: broker.py for the door, partition_worker.py for the heart.
"""
