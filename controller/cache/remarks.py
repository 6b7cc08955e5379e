"""What is remarkable about a binding: somebody may have to see to it, or at least hear of it."""

from enum import StrEnum


class Remark(StrEnum):
    """What somebody may have to see to, or at least hear of."""

    GROWN = "Grown"
    """It asks for more than its record charges (D7)."""
    ADOPTED = "Adopted"
    """It runs without a record of ours (D10)."""
    UNPAUSED = "Unpaused"
    """It is neither paused, nor placed, nor recorded: it slipped past the webhook (D10)."""
    LEAKED = "Leaked"
    """It is placed, and our record does not say that it may be: its clusters are to be cleared."""
    REPAUSED = "Repaused"
    """It is admitted and somebody paused it: it is to be resumed."""
    UNGATED = "Ungated"
    """It is paused, and is not gated, or not any more: it is to be let through."""
    UNFIXED = "Unfixed"
    """It waits, is of a kind without a queue of its own, and its queue is to be fixed in the record (Q6)."""
    RESUMED = "Resumed"
    """It was aborted, and somebody wants it to be tried again: the record is to say so (D8)."""
    UNRECORDED = "Unrecorded"
    """It carries an annotation that looks like our record and is none."""
    UNREADABLE = "Unreadable"
    """It, or its template, has a field that cannot be read."""
