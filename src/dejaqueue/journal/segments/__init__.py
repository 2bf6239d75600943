"""Segment files: the embedded journal.

Room: journal. Files, memory maps and syncs; nothing of messages but their stored columns.
See: docs/reference/journal-format.md.
"""
