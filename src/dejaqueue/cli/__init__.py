"""The dejaq command: one file per noun.

Room: cli. Talks to a broker through the public client, as any user does; `serve` alone puts a
broker together, and `key` may work in the directory of a stopped one.
"""
