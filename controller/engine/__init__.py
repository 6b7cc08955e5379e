"""The core that decides: a World in, a Plan out, and nothing else touched.

Standard library only; amounts are integers in base units, quotients exact
rationals, times integer milliseconds that come in as values.
"""
