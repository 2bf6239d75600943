"""Calls: what is asked of a broker by name, with a body, and answered with one.

Room: broker. `calls.py` has a function for each row of the table in access/calls.py.
Holds: only broker.py imports this; whoever calls goes through `Broker.call`, `ask` and `read`.
"""
