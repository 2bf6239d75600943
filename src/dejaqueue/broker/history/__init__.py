"""History: what happened to each message, as files that anybody can read.

Room: broker. The partition's worker notes, the thread that made it durable hands it over, one
thread of its own encodes and writes.
Holds: nothing is recorded that is not durable; nothing waits for history but a snapshot; what could
not be recorded leaves a row that says so.
See: docs/guides/history.md; docs/adr/0010-history-is-parquet-written-once.md.
"""
