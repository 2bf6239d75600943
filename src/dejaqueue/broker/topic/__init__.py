"""Topics: which are served here, and the way of a batch or a consumer to their partitions.

Room: broker. Any thread; what is asked of a partition runs on its worker.
See: served_topic.py, writer.py for what comes in, session.py for who consumes.
"""
