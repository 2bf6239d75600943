"""The server of the wire: Arrow Flight in, broker calls out.

Room: flight. The only server of gRPC; decides nothing about messages.
"""
