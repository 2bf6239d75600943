"""Large payloads on their way to and from the payload store, beside the workers.

Room: broker. Knows the store, and columns of payloads; partitions and consumers by what it is
given.
Holds: no worker and no event loop waits for the store; a message is stored, and acknowledged, after
its payload; a payload that cannot be read is never delivered as another one.
See: payloads.py; partition_payloads.py; uploads.py; topic/payload_collector.py, which deletes;
docs/adr/0068.
"""
