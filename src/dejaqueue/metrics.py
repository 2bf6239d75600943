"""Metrics: numbers that only grow, and histograms, counted in columns.

Room: vocabulary. numpy alone; knows no library of metrics: `http/` shows them to Prometheus.
Holds: counting a batch costs a few numpy calls, however many rows it has.
"""
