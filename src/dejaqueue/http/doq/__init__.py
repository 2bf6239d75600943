"""The HTTP API of the queue DOQ: its clients move here by changing the address.

Room: http. One file for each subject: shapes (JSON), topics, messages and rows (what they mean
here), ids, rates, refusals (status codes), routes.
See: docs/guides/moving-from-doq.md.
"""
