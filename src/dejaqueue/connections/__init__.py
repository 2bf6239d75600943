"""Connections to servers: opening one, refusing settings that lose data, naming errors."""
