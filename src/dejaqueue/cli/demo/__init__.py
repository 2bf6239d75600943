"""The demo: a real year of departures, replayed against a real broker, and what came of it.

Room: cli. Uses the public client and the command `dejaq serve`, as any user does.
See: flights.py (the input), plan.py (what must happen), replay.py (doing it), consumer.py (the
processes that receive), verdict.py (what did happen, compared in columns), report.py (the page).
"""
