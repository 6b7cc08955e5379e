"""The verdict on a new binding: one of a gated kind is stored paused and without clusters; reads and writes nothing.

Both ResourceBinding and ClusterResourceBinding are judged, in any version. Nothing but `spec.suspension.scheduling`
and `spec.clusters` is touched: a policy's `dispatching` stays. An admission record on a new binding (a restored
backup) stays too: it names the uid it was written for, which the new binding does not have, so the controller does
not believe it and the workload queues again.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from controller.api.keys import POLICY_LABELS
from controller.api.review import Members, Operation, Request, members
from webhook.request_validation import validate_target
from webhook.response import AdmissionResponse, allowed, denied, exempt, patched

GROUP = "work.karmada.io"
RESOURCES = frozenset({"resourcebindings", "clusterresourcebindings"})


class GroupKind(NamedTuple):
    """A kind in any of its versions; the core group is empty."""

    group: str
    kind: str


VOLCANO_JOB = GroupKind("batch.volcano.sh", "Job")


@dataclass(frozen=True, slots=True)
class GatedKinds:
    """Which kinds wait for admission, and in which namespaces nothing does."""

    kinds: frozenset[GroupKind] = frozenset({VOLCANO_JOB})
    exempt_namespaces: frozenset[str] = frozenset()


class Template(msgspec.Struct, frozen=True, rename="camel"):
    """The object a binding stands for."""

    api_version: str
    kind: str

    def group_kind(self) -> GroupKind:
        """Return the kind without its version."""
        group, slash, _ = self.api_version.rpartition("/")
        return GroupKind(group if slash else "", self.kind)


class Suspension(msgspec.Struct, frozen=True):
    """What keeps a binding from being scheduled; the rest of it belongs to the policy."""

    scheduling: bool | None = None


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """The members of a binding's spec that decide."""

    resource: Template
    suspension: Suspension | None = None
    clusters: list[Any] | None = None
    required_by: list[Any] | None = None
    """The bindings that brought this one along as their dependency."""


_SPEC = msgspec.json.Decoder(Spec)

_SUSPEND = Operation("add", "/spec/suspension", {"scheduling": True})
#: The answer on nearly every binding.
_SUSPENDED = patched(_SUSPEND)


def review_binding(request: Request, gated_kinds: GatedKinds) -> AdmissionResponse:
    """Return what becomes of the binding that *request* creates."""
    if refusal := validate_target(request, GROUP, RESOURCES, operations=("CREATE",)):
        return refusal
    try:
        spec = read_spec(request.members)
    except (ValueError, RecursionError) as error:
        return denied(f"binding {request.name!r} cannot be read: {error}", code=422)
    if spec.resource.group_kind() not in gated_kinds.kinds:
        return allowed()
    if request.namespace in gated_kinds.exempt_namespaces:
        return exempt()
    if spec.required_by and not _is_selected_by_policy(request.members):
        return allowed()  # it goes where those go that need it, and waits for nobody itself
    return suspend(spec)


def read_spec(binding: Members) -> Spec:
    """Return what decides in *binding*, or raise `ValueError` where it cannot be read, or could be read in two ways."""
    whole = binding.get("spec")
    if whole is None:
        raise ValueError("'spec' is missing")
    spec, found = _SPEC.decode(whole), members(whole)
    members(found["resource"])
    if spec.suspension is not None:
        members(found["suspension"])
    return spec


def _is_selected_by_policy(binding: Members) -> bool:
    """Say whether a policy selects the template by itself; what is not understood counts as if."""
    try:
        labels = members(members(binding["metadata"])["labels"])
    except KeyError:
        return False
    except (ValueError, RecursionError):
        return True
    return any(claim in labels for claim in POLICY_LABELS)


def suspend(spec: Spec) -> AdmissionResponse:
    """Return the patch that pauses a binding and takes its clusters away; none where that is so already.

    A paused binding with clusters would be dispatched all the same.
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
