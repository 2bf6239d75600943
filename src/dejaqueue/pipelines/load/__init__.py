"""Load: how many messages are due when, what that asks of consumers, and how it looks.

Room: pipelines. numpy over seconds; never over messages.
See: series.py (counts), capacity.py (what is needed), drawing.py (charts); forecast.py and
campaign.py, which use them.
"""
