"""Who is there, who owns what, and what everybody must agree on: small facts on a server.

Room: coordinator. A backend is one file here; registry.py opens it by its URL.
See: interface.py.
"""
