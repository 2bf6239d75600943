"""Sending: what users give, checked and made into batches, and their answers.

Room: client. Knows columns and values; connections only by their link.
Holds: a message is refused for its own fault only, with the field, the limit and the value
    (rule 15).
See: inputs.py for tables and lists, fields.py for one message, gather.py for many senders at once.
"""
