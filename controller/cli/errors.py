"""Errors that end a command with a message."""


class InputError(Exception):
    """Input that cannot be used; each violation names its file, document and field."""

    def __init__(self, *violations: str) -> None:
        super().__init__("\n".join(violations))
        self.violations = violations


class NotFoundError(Exception):
    """There is no object of that name; the message suggests names or says why a job is not managed."""
