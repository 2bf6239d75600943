"""Who is there, who owns what, and what everybody must agree on: small facts on a server."""
