"""Whether a review has come to the path that judges it, and is small enough to be judged; knows no object."""

from collections.abc import Collection

from controller.api.review import MAX_VALUES, Request, count_values
from webhook.response import AdmissionResponse, denied

_REMEDY = "correct the rules of its configuration"


def validate_target(
    request: Request, group: str, resources: Collection[str], *, operations: Collection[str]
) -> AdmissionResponse | None:
    """Return the refusal of a *request* that is not about *operations* on *resources*, or ``None``."""
    asked = request.resource
    if asked.group != group or asked.resource not in resources or request.sub_resource:
        path = "/".join(filter(None, (asked.group, asked.resource, request.sub_resource)))
        return denied(
            f"this webhook judges {_format_resources(group, resources)}, not {path[:200]!r}: {_REMEDY}", code=400
        )
    if request.operation not in operations:
        judged = f"{', '.join(operations)} of {_format_resources(group, resources)}"
        return denied(f"this webhook judges {judged}, not {request.operation[:60]!r}: {_REMEDY}", code=400)
    return None


def validate_value_count(request: Request) -> AdmissionResponse | None:
    """Return the refusal of an object of more values than a new one may have, or ``None``.

    One that was stored before may still be changed, so that its finalizers can be removed.
    """
    count = count_values(request.object)
    if count <= MAX_VALUES or count <= count_values(request.old_object):
        return None
    return denied(f"the object has {count} JSON values: use at most {MAX_VALUES}", code=422)


def _format_resources(group: str, resources: Collection[str]) -> str:
    return f"{group} {'/'.join(sorted(resources))}"
