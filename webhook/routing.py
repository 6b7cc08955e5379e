"""Whether a review has come to the path that judges it; knows no object."""

from collections.abc import Collection

from controller.api.review import Request
from webhook.verdict import Verdict, denied

_REMEDY = "correct the rules of its configuration"


def misrouted(
    request: Request, group: str, resources: Collection[str], *, operations: Collection[str]
) -> Verdict | None:
    """Return the refusal of a *request* that is not about *operations* on *resources*, or ``None``."""
    asked = request.resource
    if asked.group != group or asked.resource not in resources or request.sub_resource:
        path = "/".join(filter(None, (asked.group, asked.resource, request.sub_resource)))
        return denied(f"this webhook judges {_listed(group, resources)}, not {path[:200]!r}: {_REMEDY}", code=400)
    if request.operation not in operations:
        judged = f"{', '.join(operations)} of {_listed(group, resources)}"
        return denied(f"this webhook judges {judged}, not {request.operation[:60]!r}: {_REMEDY}", code=400)
    return None


def _listed(group: str, resources: Collection[str]) -> str:
    return f"{group} {'/'.join(sorted(resources))}"
