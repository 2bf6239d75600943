"""Transactions: what is staged in many partitions counts in all of them, or in none.

Room: broker. Names, the home's decisions, the coordinator that tells them, and the chore of each
partition that asks again. Nothing here blocks.
See: transactions.py for what clients call, home.py for what partitions do.
"""
