"""Journals: fenced compare-and-append logs of entries, one per partition.

Room: journal. Knows entries and bytes, not what they mean; backends do not know each other.
See: interface.py for the contract, docs/internals/writing-a-journal.md for the checklist.
"""
