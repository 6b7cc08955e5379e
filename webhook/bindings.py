"""Answers reviews of new bindings: a binding of a gated kind is stored suspended and without clusters.

ResourceBinding and ClusterResourceBinding are reviewed, in any version. Only `spec.suspension.scheduling` and
`spec.clusters` are changed: `dispatching` of a policy stays. The admission record of a restored binding stays too, but
names the uid of the former binding, so the controller ignores it and the workload queues again.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from controller.api.bindings import Suspension
from controller.api.keys import POLICY_LABELS
from webhook.review import (
    AdmissionResponse,
    Members,
    Operation,
    Request,
    allowed,
    denied,
    exempt,
    members,
    patched,
    validate_target,
)

GROUP = "work.karmada.io"
RESOURCES = frozenset({"resourcebindings", "clusterresourcebindings"})

_SUSPEND = Operation("add", "/spec/suspension", {"scheduling": True})
#: The answer for nearly every binding.
_SUSPENDED = patched(_SUSPEND)


class TemplateKind(NamedTuple):
    """Group and kind of a template, in any version; the core group is empty."""

    group: str
    kind: str


VOLCANO_JOB = TemplateKind("batch.volcano.sh", "Job")


@dataclass(frozen=True, slots=True)
class GatedKinds:
    """Kinds that wait for admission, and the exempt namespaces."""

    kinds: frozenset[TemplateKind] = frozenset({VOLCANO_JOB})
    exempt_namespaces: frozenset[str] = frozenset()


class TemplateReference(msgspec.Struct, frozen=True, rename="camel"):
    """Reference from a binding to its template."""

    api_version: str
    kind: str

    def template_kind(self) -> TemplateKind:
        """Return the kind without its version."""
        group, _, _ = self.api_version.rpartition("/")
        return TemplateKind(group, self.kind)


class ReviewedBindingSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Fields of the spec of a binding that decide the answer."""

    resource: TemplateReference
    suspension: Suspension | None = None
    clusters: list[Any] | None = None
    required_by: list[Any] | None = None
    """The bindings that this one is a dependency of."""


_SPEC = msgspec.json.Decoder(ReviewedBindingSpec)


def review_binding(request: Request, gated_kinds: GatedKinds) -> AdmissionResponse:
    """Return the patch for the binding that *request* creates."""
    if denial := validate_target(request, GROUP, RESOURCES, operations=("CREATE",)):
        return denial
    try:
        spec = read_spec(request.members)
    except (ValueError, RecursionError) as error:
        return denied(f"binding {request.name!r} cannot be decoded: {error}", code=422)
    if spec.resource.template_kind() not in gated_kinds.kinds:
        return allowed()
    if request.namespace in gated_kinds.exempt_namespaces:
        return exempt()
    if spec.required_by and not _is_selected_by_policy(request.members):
        return allowed()  # follows the bindings that require it
    return suspend(spec)


def read_spec(binding: Members) -> ReviewedBindingSpec:
    """Return the fields that decide in *binding*; raises `ValueError` if it is undecodable or has repeated fields."""
    spec_value = binding.get("spec")
    if spec_value is None:
        raise ValueError("'spec' is missing")
    spec, fields = _SPEC.decode(spec_value), members(spec_value)
    members(fields["resource"])
    if spec.suspension is not None:
        members(fields["suspension"])
    return spec


def _is_selected_by_policy(binding: Members) -> bool:
    """Return whether a policy selects the template itself, or whether that is unknown."""
    try:
        labels = members(members(binding["metadata"])["labels"])
    except KeyError:
        return False
    except (ValueError, RecursionError):
        return True
    return any(claim in labels for claim in POLICY_LABELS)


def suspend(spec: ReviewedBindingSpec) -> AdmissionResponse:
    """Return the patch that suspends a binding and removes its clusters, if necessary.

    Karmada would dispatch a suspended binding that has clusters.
    """
    if spec.suspension is None and not spec.clusters:
        return _SUSPENDED
    operations = []
    if spec.suspension is None:
        operations.append(_SUSPEND)
    elif spec.suspension.scheduling is not True:
        operations.append(Operation("add", "/spec/suspension/scheduling", True))
    if spec.clusters:
        operations.append(Operation("remove", "/spec/clusters"))
    return patched(*operations)
