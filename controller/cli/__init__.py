"""The operators' commands: they look and report, and never write anything."""
