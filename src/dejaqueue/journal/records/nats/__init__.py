"""Records on NATS JetStream: one stream for each partition, copied by the servers.

Room: journal. Above interface.py of the records; the journal knows no NATS.
Holds: a record that a damaged copy returns is not believed: it is read from another copy.
See: store.py for the calls; reading.py and copies.py for damaged copies; watch.py for finding them
    before a reader does.
"""
