"""Servers that run beside the broker: their settings, their processes, their health."""
