"""Validates that a review was sent to the right path and that its object is not too large."""

from collections.abc import Collection

from webhook.response import AdmissionResponse, denied
from webhook.review import MAX_VALUES, Request, count_values

_REMEDY = "correct the rules of its configuration"


def validate_target(
    request: Request, group: str, resources: Collection[str], *, operations: Collection[str]
) -> AdmissionResponse | None:
    """Return a denial of a *request* that is not about *operations* on *resources*, or ``None``."""
    resource = request.resource
    if resource.group != group or resource.resource not in resources or request.sub_resource:
        path = "/".join(filter(None, (resource.group, resource.resource, request.sub_resource)))
        return denied(
            f"this webhook reviews {_format_resources(group, resources)}, not {path[:200]!r}: {_REMEDY}", code=400
        )
    if request.operation not in operations:
        expected = f"{', '.join(operations)} of {_format_resources(group, resources)}"
        return denied(f"this webhook reviews {expected}, not {request.operation[:60]!r}: {_REMEDY}", code=400)
    return None


def validate_value_count(request: Request) -> AdmissionResponse | None:
    """Return a denial of an object with more JSON values than a new object may have, or ``None``.

    A stored object may still be updated, so that its finalizers can be removed.
    """
    count = count_values(request.object)
    if count <= MAX_VALUES or count <= count_values(request.old_object):
        return None
    return denied(f"the object has {count} JSON values: use at most {MAX_VALUES}", code=422)


def _format_resources(group: str, resources: Collection[str]) -> str:
    return f"{group} {'/'.join(sorted(resources))}"
