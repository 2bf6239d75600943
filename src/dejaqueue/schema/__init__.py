"""What a batch looks like: Arrow schemas, and the checks that a batch fits them.

Room: schema. pyarrow and numpy; no sockets, no files, no clock.
"""
