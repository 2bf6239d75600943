"""A topic in shards, as its callers see it: one topic.

Room: client. Each shard is called like a topic of its own; here the parts are put together.
Holds: a row goes to the shard that schema/shards.py says, whoever sends it.
See: docs/adr/0016-a-topic-in-shards.md; flight/sharded.py for callers who do not follow shards.
"""
