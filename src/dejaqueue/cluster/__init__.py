"""Brokers that are several: who is there, who serves what; and the servers that run beside them.

Room: cluster. Above the broker, which knows it by one port alone (broker/topic/cluster_port.py).
"""
