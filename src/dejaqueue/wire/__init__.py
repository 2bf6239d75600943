"""Bytes on the wire to commands and back, without sockets.

Room: wire. Struct and numpy; the Flight server and the client both use it, neither is imported.
See: docs/wire.md, which says the same for other languages.
"""
