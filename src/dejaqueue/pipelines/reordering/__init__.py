"""What the pipeline `reorder` is made of: Kafka records as messages, and messages as records.

Room: pipelines.
See: records.py; pipelines/reorder.py.
"""
