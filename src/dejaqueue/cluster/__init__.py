"""Brokers that are several: who is there, who serves what; and servers that run beside a broker."""
