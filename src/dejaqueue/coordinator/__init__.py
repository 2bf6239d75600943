"""Who owns a partition, and which topics there are.

Room: coordinator. One interface, one file per backend.
"""
