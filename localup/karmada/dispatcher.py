"""Karmada's binding controller: a Work for each cluster in `spec.clusters`, and none for others.

It looks at a binding when its generation changes. A Work whose dispatching the
policy suspends exists, but is kept from its cluster.
"""

import uuid

import structlog

from localup.karmada.feasibility import target_names
from localup.karmada.mirror import Mirror
from localup.karmada.names import BINDING_FINALIZER, WORK_ID, cluster_of
from localup.karmada.objects import (
    Key,
    Object,
    finalizers_of,
    generation_of,
    is_leaving,
    key_of,
    labels_of,
    spec_of,
    with_metadata,
)
from localup.karmada.workqueue import AgainError, WorkQueue
from localup.karmada.works import updated, work_for, work_key
from localup.karmada.writer import Writer

log = structlog.get_logger()


class Dispatcher:
    """Makes, updates and removes works."""

    def __init__(self, mirror: Mirror, writer: Writer) -> None:
        self._mirror = mirror
        self._writer = writer
        self.queue = WorkQueue[Key]("dispatcher", self._reconcile)
        mirror.bindings.listen(self._binding_changed)

    def _binding_changed(self, old: Object | None, new: Object | None) -> None:
        if new is not None and (old is None or generation_of(old) != generation_of(new)):
            self.queue.add(key_of(new))

    async def _reconcile(self, key: Key) -> None:
        binding = self._mirror.bindings.get(key)
        if binding is None:
            return
        targets = [] if is_leaving(binding) else target_names(binding)
        for work in self._mirror.works_of(binding):
            if cluster_of(key_of(work).namespace) not in targets:
                await self._writer.delete(self._mirror.works, work)
                log.info("work removed", work=str(key_of(work)))
        if is_leaving(binding):
            await self._let_go(binding)
            return
        template = self._mirror.template_of(binding)
        if template is not None:
            for target in spec_of(binding).get("clusters") or ():
                await self._send(binding, template, target)

    async def _send(self, binding: Object, template: Object, target: Object) -> None:
        works = self._mirror.works
        existing = works.get(work_key(template, target["name"]))
        if existing is None:
            made = await self._writer.create(works, work_for(binding, template, target, permanent_id=str(uuid.uuid4())))
            log.info("work created", work=str(key_of(made)), cluster=target["name"])
            return
        if is_leaving(existing):
            raise AgainError(f"work {key_of(existing)} is being deleted")
        desired = work_for(binding, template, target, permanent_id=labels_of(existing)[WORK_ID])
        await self._writer.update(works, existing, updated(existing, desired))

    async def _let_go(self, binding: Object) -> None:
        kept = [each for each in finalizers_of(binding) if each != BINDING_FINALIZER]
        if kept != finalizers_of(binding):
            await self._writer.update(self._mirror.bindings, binding, with_metadata(binding, finalizers=kept))
