"""The same small load for each queue that `peers` compares: one message a call, and one an ack.

Room: bench. Each module is a queue as its Python users use it: `make_peer` of a URL and a variant
answers a Peer (peer.py), or an AsyncPeer where the client is asynchronous alone.
Holds: a send returns when the server has confirmed it; a message is acked before the next is taken.
See: bench/peers/load.py, which drives them; bench/questions/peers.py, bench/systems/peers.py.
"""
