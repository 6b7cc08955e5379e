"""Formats reports as text, tables, JSON and YAML."""
