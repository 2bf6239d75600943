"""The shell around the engine: partition workers, dispatch, topics, backpressure.

The door, which is all that other rooms import (.importlinter holds it):

    broker.py      Broker: its life, its topics, and `call`, `ask`, `read` for all calls
    streams.py     what serves streams: writers, consumers' sessions, deliveries
    watching.py    what looks from outside: metrics, health
    doq/           what the HTTP API of DOQ does with messages by name

Room: broker. Threads, time and journals meet the pure engine here; no sockets.
See: worker.py and partition.py for the heart; calls/ for the functions of calls.
"""
