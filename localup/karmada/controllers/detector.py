"""Implements Karmada's detector: creates bindings from templates and policies.

A deleted binding is recreated only when its template changes (facts, §1). A rejected create, for example while a
webhook is down, is retried with exponential backoff.
"""

from functools import partial
from typing import NamedTuple

import structlog

from controller.api.keys import Resource, binding_name
from localup.karmada.binding import (
    Claim,
    binding_for,
    is_claimed,
    owner_of,
    policy_of,
    selects_or_claims,
    updated_binding,
    with_claim,
    without_claim,
)
from localup.karmada.cache import ControlPlaneCache
from localup.karmada.controller import Controller, RetryError
from localup.karmada.objects import (
    CLUSTER_POLICIES,
    CLUSTER_POLICY_ID,
    POLICY_ID,
    Key,
    Object,
    is_a,
    is_reserved,
    is_terminating,
    key_of,
    labels_of,
    permanent_id_label,
    same_specification,
    uid_of,
    with_metadata,
)

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
        policy = policy_of(template, [policy for store in self.cache.policies for policy in store])
        if policy is None:
            await self._release(template)
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
