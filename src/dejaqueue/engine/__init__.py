"""The pure state machine of a partition.

Room: engine. Columns in, columns out: numpy only; no clock, no I/O, no threads, no randomness.
Holds: the same commands give the same state, to the bit, on every machine (rule 13).
See: engine.py for the door, docs/internals/engine.md for the tour.
"""
