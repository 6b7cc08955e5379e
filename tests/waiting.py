"""How long a test waits for an event before it fails.

A wait ends with the event it waits for. The limit only ends a test that
hangs, so it is generous: a busy machine must not reach it.
"""

LIMIT_SECONDS = 180.0
