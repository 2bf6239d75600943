"""What the HTTP API of DOQ does with messages: by name alone, on the partition's worker.

Room: broker. A part of the door: http/doq hands these functions on, and knows no partition.
"""
