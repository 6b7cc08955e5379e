"""Answers reviews of DataSourceClaims: a claim is for a workload of its own namespace, and within limits."""

from itertools import islice

from controller.api.data_sources import claim_violations, decode_claim
from controller.api.keys import DATA_SOURCE_CLAIMS
from webhook.review import AdmissionResponse, Request, allowed, denied, exempt, leaves_unchanged, validate_target

_MAX_VIOLATIONS = 10


def validate_claim(request: Request, exempt_namespaces: frozenset[str]) -> AdmissionResponse:
    """Return whether the controller can use the claim."""
    resources = {DATA_SOURCE_CLAIMS.plural}
    if denial := validate_target(request, DATA_SOURCE_CLAIMS.group, resources, operations=("CREATE", "UPDATE")):
        return denial
    if request.namespace in exempt_namespaces:
        return exempt()
    if leaves_unchanged(request, "spec"):
        return allowed()
    try:
        violations = list(islice(claim_violations(decode_claim(request.object), request.namespace), _MAX_VIOLATIONS))
    except (ValueError, RecursionError) as error:
        violations = [str(error)]
    path = f"DataSourceClaim {request.namespace}/{request.name}"
    return denied(f"{path}: {'; '.join(violations)}", code=422) if violations else allowed()
