"""Dead letters: messages that died travel to another topic.

Room: broker. A chore of each partition, and one carrier for all of them.
See: dead_letters.py; rule 18.
"""
