"""Validates the lifecycle policies of jobs and tasks by Volcano's rules."""

from collections.abc import Iterable, Iterator

from webhook.job_types import Policy

ANY_EVENT = "*"
#: Events that users may name; OutOfSync, CommandIssued and PodRunning are internal to Volcano.
EVENTS = (
    ANY_EVENT,
    "PodPending",
    "PodFailed",
    "PodEvicted",
    "Unknown",
    "TaskCompleted",
    "TaskFailed",
    "JobUpdated",
)
ACTIONS = (
    "AbortJob",
    "RestartJob",
    "RestartTask",
    "RestartPod",
    "RestartPartition",
    "TerminateJob",
    "CompleteJob",
    "ResumeJob",
)
_VALID = f"valid events are [{' '.join(EVENTS)}], valid actions are [{' '.join(ACTIONS)}]"


def lifecycle_policy_violations(policies: Iterable[Policy] | None, path: str) -> Iterator[str]:
    """Yield why the policies at *path* are invalid, up to the first invalid policy, as Volcano does."""
    seen: set[str | int] = set()
    for policy in policies or ():
        if violation := _policy_violation(policy, seen):
            yield f"{path}: {violation}; {_VALID}"
            return
    events = {event for event in seen if isinstance(event, str)}
    if ANY_EVENT in events and len(events) > 1:
        yield f"{path}: if there's * here, no other policy should be here: list the events individually; {_VALID}"


def _policy_violation(policy: Policy, seen: set[str | int]) -> str | None:
    """Return why one policy is invalid, and add its events or exit code to *seen*."""
    events, code = policy.all_events, policy.exit_code
    if events and code is not None:
        return "must not specify event and exitCode simultaneously: split it into two policies"
    if events:
        return next(filter(None, (_event_violation(policy, event, seen) for event in events)), None)
    if code is None:
        return "either event and exitCode should be specified: set one"
    if code == 0:
        return "0 is not a valid error code: a pod that ends with 0 has succeeded"
    if code in seen:
        return f"duplicate exitCode {code}: remove one"
    seen.add(code)
    return None


def _event_violation(policy: Policy, event: str, seen: set[str | int]) -> str | None:
    if event not in EVENTS:
        return f"invalid policy event {event[:60]!r}"
    if policy.action not in ACTIONS:
        return f"invalid policy action {policy.action[:60]!r}"
    if event in seen:
        return f"duplicate event {event} across different policy: remove one"
    seen.add(event)
    return None
