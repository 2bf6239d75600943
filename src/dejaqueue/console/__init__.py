"""The console: what a broker has and will have, in a browser, to look at and to change.

Room: console. Pages over the HTTP API; imports nothing of the broker.
Holds: whatever a page shows or does is a request of the API, made in this process with the viewer's
own key, so that roles, quotas, audit and forwarding are those of any other caller.
See: docs/guides/console.md; docs/adr/0046-the-console-calls-the-http-api.md.
"""
