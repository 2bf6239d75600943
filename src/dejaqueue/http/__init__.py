"""HTTP: a broker's calls for every language that has no Arrow Flight; health and metrics.

Room: http. FastAPI beneath, the broker in this process behind it; decides nothing about messages.
Holds: access is asked at the boundary, before the broker is called.
See: app.py, where the routes come together; server.py for the port; docs/guides/http.md.
"""
