"""Consumers of a topic: credit, turns, who has which partition, and what they are sent.

Room: broker. Knows no partitions: it is told numbers.
See: dispatch.py; gathering.py for the rows of a delivery.
"""
