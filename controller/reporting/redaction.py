"""Removes the names of others' workloads and of advance reservations from reasons and messages for a tenant.

Messages in a namespace (events, statuses) name workloads of that namespace only. Amounts, clusters, and the queue of
the workload with its ancestors are not redacted.
"""

from collections.abc import Callable
from dataclasses import replace

from controller.engine.reasons import ADVANCE_RESERVATION, Reason, Refusal, is_advance_reservation

MaySee = Callable[[str], bool]
"""Whether the reader may see the workloads of a namespace; cluster-scoped workloads have an empty namespace."""

ANOTHER_WORKLOAD = "another workload"

#: Reasons with the path of another workload as their subject.
_NAMES_A_WORKLOAD = frozenset(
    {Reason.BLOCKED_BY_RESERVATION, Reason.BLOCKED_BY_QUEUE_HEAD, Reason.HYPERJOB_DOES_NOT_FIT}
)


def redacted_refusal(refusal: Refusal, may_see: MaySee) -> Refusal:
    """Return *refusal* without the name of a workload that the reader may not see."""
    if refusal.reason not in _NAMES_A_WORKLOAD or refusal.subject is None:
        return refusal
    if is_advance_reservation(refusal) and not may_see(""):
        return replace(refusal, subject=ADVANCE_RESERVATION)
    return replace(refusal, subject=redacted_path(refusal.subject, may_see))


def redacted_message(reason: str | None, subject: object, message: str, may_see: MaySee) -> str:
    """Return a recorded *message* without the name in its *subject* that the reader may not see."""
    if reason not in _NAMES_A_WORKLOAD or not isinstance(subject, str) or not subject:
        return message
    if subject.startswith(ADVANCE_RESERVATION):
        name = subject.removeprefix(ADVANCE_RESERVATION)
        return message if may_see("") else message.replace(f"advance reservation '{name}'", "an advance reservation")
    return message.replace(subject, redacted_path(subject, may_see))


def redacted_path(path: str, may_see: MaySee) -> str:
    """Return the workload *path*, ``Kind namespace/name``, or words for it if the reader may not see it."""
    name = path.partition(" ")[2]
    namespace, slash, _ = name.partition("/")
    return path if may_see(namespace if slash else "") else ANOTHER_WORKLOAD


def same_namespace(namespace: str) -> MaySee:
    """Return the access of a reader of one namespace."""
    return lambda other: bool(namespace) and other == namespace
