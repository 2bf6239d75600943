"""The embedded journal: segment files, preallocated, mapped for reading.

Room: journal, one backend. The memory journal is this one on files kept in memory.
Holds: a segment is named by its first position; entries never span segments; what an append wrote
is synced before it returns; what is behind a snapshot and has no live rows is deleted.
See: journal.py (append, read, free), recovery.py (what a crash left); and
docs/reference/journal-format.md.
"""
