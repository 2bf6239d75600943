"""HTTP: what probes and people ask a broker with curl.

Room: http. Knows a broker only through the functions that it is given.
"""
