"""The `volcano-global` command line: read-only reports for operators."""
