"""The scheduling engine: pure functions and data that turn a ``State`` into a ``Plan``.

Standard library only. Amounts are integers in base units, ratios are exact
fractions, and times are integer milliseconds passed in as arguments.
"""
