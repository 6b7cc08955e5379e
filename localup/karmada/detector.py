"""Implements Karmada's detector: creates bindings from templates and the policies that select them.

Fields written by others (`spec.clusters`, `suspension.scheduling`, labels and annotations) survive later passes
(facts, no. 9). A claimed template stays with its policy while that policy selects it, unless a policy that names the
template preempts it (`preemption: Always`, gate PolicyPreemption). A template that its policy has lost is released
before another policy claims it. A deleted binding is recreated only when its template changes (§1). A rejected create,
for example while a webhook is down, is retried with exponential backoff.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, Final, NamedTuple, Self

import structlog

from controller.api.keys import JOBS, POLICY_LABELS, Resource, binding_name
from localup.karmada.cache import ControlPlaneCache
from localup.karmada.controller import Controller, RetryError
from localup.karmada.objects import (
    BATCH_JOBS,
    BINDING_FINALIZER,
    BINDING_ID,
    BINDINGS,
    CLUSTER_BINDING_ID,
    CLUSTER_BINDINGS,
    CLUSTER_POLICIES,
    CLUSTER_POLICY_ID,
    CLUSTER_POLICY_NAME,
    POLICY_ID,
    POLICY_NAME,
    POLICY_NAMESPACE,
    REPLICATED,
    Key,
    Object,
    annotations_of,
    finalizers_of,
    is_a,
    is_reserved,
    is_terminating,
    key_of,
    labels_match,
    labels_of,
    new_object,
    permanent_id_label,
    present,
    same_specification,
    spec_of,
    uid_of,
    with_metadata,
    with_spec,
)
from localup.karmada.workloads import replica_requirements


class Match(IntEnum):
    """How specifically a policy selects a template; higher is more specific."""

    NONE = 0
    ALL = 1
    LABELS = 2
    NAME = 3


@dataclass(frozen=True, slots=True)
class Claim:
    """Labels and annotations that name the policy of a template or binding."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @classmethod
    def of(cls, policy: Object) -> Self:
        """Return the claim of a policy with a permanent id."""
        key = key_of(policy)
        if is_a(policy, CLUSTER_POLICIES):
            labels = {CLUSTER_POLICY_ID: labels_of(policy)[CLUSTER_POLICY_ID]}
            return cls(labels, {CLUSTER_POLICY_NAME: key.name})
        labels = {POLICY_ID: labels_of(policy)[POLICY_ID]}
        return cls(labels, {POLICY_NAME: key.name, POLICY_NAMESPACE: key.namespace})


_CLAIM_ANNOTATIONS = frozenset({POLICY_NAME, POLICY_NAMESPACE, CLUSTER_POLICY_NAME})


def policy_of(template: Object, policies: Iterable[Object]) -> Object | None:
    """Return the policy that propagates *template*: the claiming one, otherwise the best that selects it.

    Policies of the namespace precede cluster policies. Then explicit priority, specificity and name decide.
    """
    selecting = [
        (closeness, item) for item in policies if (closeness := _closeness(item, template)) and not is_terminating(item)
    ]
    claimed = next((policy for _, policy in selecting if key_of(policy) == claimed_by(template, policy)), None)
    if claimed is not None:
        selecting = [(closeness, item) for closeness, item in selecting if _preempts(item, closeness, claimed)]
    return min(selecting, key=lambda pair: _rank(*pair))[1] if selecting else claimed


def is_lost(template: Object, policies: Iterable[Object]) -> bool:
    """Return whether a policy claims *template* that no longer selects it, or is being deleted."""
    return is_claimed(template) and not any(
        claimed_by(template, policy) == key_of(policy) and _closeness(policy, template) and not is_terminating(policy)
        for policy in policies
    )


def _preempts(policy: Object, closeness: Match, claimed: Object) -> bool:
    """Return whether *policy* takes a template over from *claimed*: only one that names the template does."""
    if closeness is not Match.NAME or spec_of(policy).get("preemption") != "Always":
        return False
    return _rank(closeness, policy)[:2] < _rank(closeness, claimed)[:2]


def selects_or_claims(policy: Object, template: Object) -> bool:
    """Return whether a policy selects *template* or has claimed it."""
    return bool(_closeness(policy, template)) or claimed_by(template, policy) == key_of(policy)


def claimed_by(item: Object, policy: Object) -> Key | None:
    """Return the key of the policy of *policy*'s kind that claims *item*."""
    annotations = annotations_of(item)
    if is_a(policy, CLUSTER_POLICIES):
        named = annotations.get(CLUSTER_POLICY_NAME)
        return Key("", named) if named else None
    named = annotations.get(POLICY_NAME)
    return Key(annotations.get(POLICY_NAMESPACE, ""), named) if named else None


def is_claimed(item: Object) -> bool:
    """Return whether a policy claims *item*."""
    return any(label in labels_of(item) for label in POLICY_LABELS)


def with_claim(item: Object, claim: Claim) -> Object:
    """Return *item* with exactly this claim."""
    return with_metadata(
        item,
        labels={**_without(labels_of(item), POLICY_LABELS), **claim.labels},
        annotations={**_without(annotations_of(item), _CLAIM_ANNOTATIONS), **claim.annotations},
    )


def without_claim(item: Object) -> Object:
    """Return *item* without any claim."""
    return with_claim(item, Claim({}, {}))


def _rank(closeness: Match, policy: Object) -> tuple[bool, int, int, str]:
    priority = spec_of(policy).get("priority") or 0
    return is_a(policy, CLUSTER_POLICIES), -priority, -closeness, policy["metadata"]["name"]


def _closeness(policy: Object, template: Object) -> Match:
    """Return the most specific match of the policy's selectors."""
    home = key_of(policy).namespace
    if home and home != key_of(template).namespace:
        return Match.NONE
    selectors = spec_of(policy).get("resourceSelectors") or ()
    return max((_selects(selector, template) for selector in selectors), default=Match.NONE)


def _selects(selector: Object, template: Object) -> Match:
    key = key_of(template)
    if (selector["apiVersion"], selector["kind"]) != (template["apiVersion"], template["kind"]):
        return Match.NONE
    if selector.get("namespace", "") not in {"", key.namespace}:
        return Match.NONE
    if selector.get("name"):  # with a name the label selector is ignored
        return Match.NAME if selector["name"] == key.name else Match.NONE
    if selector.get("labelSelector") is None:
        return Match.ALL
    return Match.LABELS if labels_match(selector["labelSelector"], labels_of(template)) else Match.NONE


def _without(fields: Mapping[str, str], left_out: Iterable[str]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if name not in left_out}


#: Fields that the detector overwrites at each pass.
_DETECTOR_FIELDS: Final = (
    "components",
    "conflictResolution",
    "failover",
    "placement",
    "preserveResourcesOnDeletion",
    "propagateDeps",
    "replicaRequirements",
    "replicas",
    "resource",
    "schedulerName",
)

_COPIED_FROM_POLICY: Final = ("failover", "preserveResourcesOnDeletion", "propagateDeps")
_DISPATCHING: Final = ("dispatching", "dispatchingOnClusters")


def binding_for(template: Object, policy: Object, *, permanent_id: str, multi_template: bool = False) -> Object:
    """Return the binding as created, before other webhooks than Karmada's own have changed it.

    With *multi_template* (feature gate MultiplePodTemplatesScheduling) bindings of Volcano Jobs have components.
    """
    wanted = spec_of(policy)
    key = key_of(template)
    spec = {
        **_size_fields(template, multi_template=multi_template),
        **{name: wanted[name] for name in _COPIED_FROM_POLICY if wanted.get(name)},
        "conflictResolution": wanted.get("conflictResolution") or "Abort",
        "placement": _placement(wanted.get("placement") or {}),
        "resource": reference(template),
        "schedulerName": wanted.get("schedulerName") or "default-scheduler",
        "suspension": dict(wanted.get("suspension") or {}) or None,
    }
    bare = new_object(
        BINDINGS if key.namespace else CLUSTER_BINDINGS,
        binding_name(key.name, template["kind"]),
        key.namespace,
        finalizers=[BINDING_FINALIZER],
        labels={permanent_id_label(key.namespace): permanent_id},
        ownerReferences=[owner(template)],
    )
    return with_claim({**bare, "spec": present(spec)}, Claim.of(policy))


def updated_binding(existing: Object, desired: Object) -> Object:
    """Return *existing* with the *desired* state of the detector's fields."""
    free = without_claim(existing)
    merged = with_metadata(
        existing,
        annotations={**annotations_of(free), **annotations_of(desired)},
        finalizers=list(dict.fromkeys([*finalizers_of(existing), *finalizers_of(desired)])),
        labels={**labels_of(free), **labels_of(desired), **permanent_id_of(existing)},
        ownerReferences=desired["metadata"]["ownerReferences"],
    )
    spec = spec_of(desired)
    suspension = _suspension(spec_of(existing).get("suspension"), spec.get("suspension"))
    return with_spec(merged, **{name: spec.get(name) for name in _DETECTOR_FIELDS}, suspension=suspension)


def owner_of(binding: Object) -> str:
    """Return the uid of the owning template; another template may require the same binding name (facts, §1)."""
    owners: Iterable[Object] = binding["metadata"].get("ownerReferences") or ()
    return next((str(item["uid"]) for item in owners if item.get("controller")), "")


def _suspension(existing: Object | None, wanted: Object | None) -> Object | None:
    """Return `scheduling` from the existing binding and the rest from the policy; ``None`` if both are empty."""
    remaining = {name: value for name, value in (existing or {}).items() if name not in _DISPATCHING}
    return {**remaining, **(wanted or {})} or None


def permanent_id_of(binding: Object) -> dict[str, str]:
    """Return the label with the permanent id of a binding."""
    return {name: value for name, value in labels_of(binding).items() if name in {BINDING_ID, CLUSTER_BINDING_ID}}


def reference(template: Object) -> dict[str, Any]:
    """Return the binding's reference to *template*."""
    kind = {"apiVersion": template["apiVersion"], "kind": template["kind"]}
    metadata = template["metadata"]
    return kind | {name: metadata[name] for name in ("name", "namespace", "resourceVersion", "uid") if name in metadata}


def owner(template: Object) -> dict[str, Any]:
    """Return the owner reference to *template*, for garbage collection."""
    return {
        "apiVersion": template["apiVersion"],
        "blockOwnerDeletion": True,
        "controller": True,
        "kind": template["kind"],
        "name": template["metadata"]["name"],
        "uid": uid_of(template),
    }


def _placement(placement: Object) -> dict[str, Any]:
    """Return a placement with the defaults that Karmada's webhook sets in policies."""
    constraints = placement.get("spreadConstraints")
    strategy = placement.get("replicaScheduling")
    filled = dict(placement)
    if constraints:
        filled["spreadConstraints"] = [_constraint(constraint) for constraint in constraints]
    if strategy:
        filled["replicaScheduling"] = _strategy(strategy)
    return filled


def _constraint(constraint: Object) -> dict[str, Any]:
    field = {} if constraint.get("spreadByLabel") else {"spreadByField": "cluster"}
    return {**field, **constraint, "minGroups": constraint.get("minGroups") or 1}


def _strategy(strategy: Object) -> dict[str, Any]:
    filled = {"replicaSchedulingType": "Divided", **strategy}
    if filled["replicaSchedulingType"] == "Divided":
        filled.setdefault("replicaDivisionPreference", "Weighted")
    return filled


def _size_fields(template: Object, *, multi_template: bool) -> dict[str, Any]:
    """Return the size fields that Karmada reads from a template: none for a Volcano Job (facts, no. 5)."""
    spec = spec_of(template)
    if is_a(template, JOBS):
        components = [_component(*item) for item in enumerate(spec.get("tasks") or ())]
        return {"components": components} if multi_template else {}
    if is_a(template, *REPLICATED):
        replicas = int(spec.get("replicas", 1))
    elif is_a(template, BATCH_JOBS):
        parallelism = int(spec.get("parallelism", 1))
        replicas = min(parallelism, int(spec.get("completions", parallelism)))
    else:
        return {}
    return {"replicas": replicas or None, "replicaRequirements": replica_requirements(spec.get("template") or {})}


def _component(index: int, task: Object) -> dict[str, Any]:
    """Return a task's component with `minAvailable` or 1 replicas, the undercount of Karmada's interpreter (no. 6)."""
    component = {
        "name": task.get("name") or f"task-{index}",
        "replicaRequirements": replica_requirements(task.get("template") or {}),
        "replicas": int(task.get("minAvailable", 1)),
    }
    return present(component)


log = structlog.get_logger()


class TemplateReference(NamedTuple):
    """Kind and key of a template."""

    resource: Resource
    key: Key

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.key}"


class Detector(Controller[TemplateReference]):
    """Creates and updates bindings."""

    def __init__(self, cache: ControlPlaneCache) -> None:
        super().__init__(cache)
        for store in cache.templates:
            store.add_event_handler(partial(self._template_changed, store.resource))
        for store in cache.policies:
            store.add_event_handler(self._policy_changed)

    def _template_changed(self, resource: Resource, old: Object | None, new: Object | None) -> None:
        if new is None or is_reserved(key_of(new).namespace):
            return
        if old is None or not same_specification(old, new):
            self.queue.add(TemplateReference(resource, key_of(new)))

    def _policy_changed(self, old: Object | None, new: Object | None) -> None:
        if old is not None and new is not None and same_specification(old, new):
            return
        policy = new or old or {}
        for store in self.cache.templates:
            for item in store:
                if selects_or_claims(policy, item) and not is_reserved(key_of(item).namespace):
                    self.queue.add(TemplateReference(store.resource, key_of(item)))

    async def reconcile(self, key: TemplateReference) -> None:
        """Create or update the binding of a template."""
        template: Object | None = self.cache.stores[key.resource].get(key.key)
        if template is None or is_terminating(template):
            return
        policies = [policy for store in self.cache.policies for policy in store]
        policy = policy_of(template, policies)
        if policy is None or is_lost(template, policies):
            await self._release(template)  # a change, which queues it again
            return
        policy = await self._with_permanent_id(policy)
        template = await self.cache.update(template, with_claim(template, Claim.of(policy)))
        await self._apply(template, policy)

    async def _apply(self, template: Object, policy: Object) -> None:
        namespace = key_of(template).namespace
        existing = self._binding_of(template)
        permanent_id = labels_of(existing).get(permanent_id_label(namespace)) if existing else None
        desired = binding_for(template, policy, permanent_id=permanent_id or self.cache.new_id())
        if existing is None:
            await self.cache.create(desired)
            log.info("binding created", binding=str(key_of(desired)), policy=str(key_of(policy)))
        elif owner_of(existing) != uid_of(template):
            raise RetryError(f"binding {key_of(existing)} belongs to another template of the same name")
        elif not is_terminating(existing):
            await self.cache.update(existing, updated_binding(existing, desired))

    async def _release(self, template: Object) -> None:
        """Remove the claim from a template that no policy selects, and from its binding, which remains."""
        if not is_claimed(template):
            return
        binding = self._binding_of(template)
        if binding is not None and owner_of(binding) == uid_of(template):
            await self.cache.update(binding, without_claim(binding))
        await self.cache.update(template, without_claim(template))
        log.info("template released", template=str(key_of(template)))

    async def _with_permanent_id(self, policy: Object) -> Object:
        """Return *policy* with a permanent id, which Karmada's webhook would set."""
        label = CLUSTER_POLICY_ID if is_a(policy, CLUSTER_POLICIES) else POLICY_ID
        if labels_of(policy).get(label):
            return policy
        named = with_metadata(policy, labels={**labels_of(policy), label: self.cache.new_id()})
        return await self.cache.update(policy, named)

    def _binding_of(self, template: Object) -> Object | None:
        key = key_of(template)
        bindings = self.cache.bindings_for(key.namespace)
        return bindings.get(Key(key.namespace, binding_name(key.name, template["kind"])))
