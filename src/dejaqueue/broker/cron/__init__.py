"""Cron topics: when entries fire, and the messages that come of it.

Room: broker. expressions.py and zones.py know calendars, firings.py entries, fire.py partitions.
See: rule 17; engine/schedule.py for what of it is journalled.
"""
