"""Connections to servers: opening one, refusing settings that lose data, naming errors.

Room: connections. Knows no journal and no coordinator: both are built on this.
"""
