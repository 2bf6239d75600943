"""What developers start by hand and tests start by themselves.

Room: dev; never shipped.
"""
