"""Deterministic simulation: a real broker whose threads, disk, network and time a seed decides.

Room: testing; shipped, so that a failing seed can be replayed wherever DejaQ is installed.
Holds: the same seed does the same, to the last byte; nothing here starts a thread, sleeps or reads
a clock. The idea is that of FoundationDB's simulation and of TigerBeetle's VOPR.
"""
