"""The scheduling engine: turns events about queues, clusters and workloads into plans.

Standard library only. Amounts are integers in base units, ratios are exact
fractions, and times are integer milliseconds passed in as arguments.
"""
