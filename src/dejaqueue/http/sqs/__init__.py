"""The API of Amazon SQS (its JSON protocol): its clients move here by another endpoint.

Room: http. One file for each subject: names (addresses, ARNs), topics (attributes), rows (messages,
attributes, digests), receipts, messages, catalogue and moves (the operations), refusals (error
codes), calls (the table of operations), door (the path, signatures).
Holds: no semantics of its own: each operation is calls that other doors have, too.
See: docs/guides/moving-from-sqs.md; access/signatures.py.
"""
