"""The dejaq command: one file per noun.

Room: cli. Talks to a broker through the public client, as any user does.
"""
