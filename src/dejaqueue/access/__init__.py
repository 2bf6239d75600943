"""Access: who calls, and what they may do.

Room: access. Knows keys, roles and topic patterns; no sockets and no messages. The servers ask it
at their boundary, before the broker is called; `dejaqueue.open` has no boundary and asks nothing.
"""
