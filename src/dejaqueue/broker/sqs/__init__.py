"""What the API of SQS does with messages that no other call does: on the partition's worker.

Room: broker. A part of the door: http/sqs hands these functions on, and knows no partition.
"""
