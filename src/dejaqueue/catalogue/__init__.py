"""The catalogue as a journal: what there is in a broker, as a log of changes.

Room: catalogue. Knows topics' settings and the store of journals; no partitions, no coordinator.
Holds: the state is what the entries make of it, and nothing else changes it.
See: changes.py for the entries, state.py for what they do, log.py for where they are kept; broker/
topic/catalogue.py for what a broker asks and refuses; docs/adr/0034-the-catalogue-is-a-journal.md.
"""
