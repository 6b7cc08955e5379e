"""Karmada's status controllers: from the works to the binding, and from there to the template."""

import time

import structlog

from localup.karmada.aggregation import aggregated, summed_up
from localup.karmada.binding import owner_of
from localup.karmada.mirror import Mirror
from localup.karmada.objects import Key, Object, is_leaving, key_of, status_of, uid_of
from localup.karmada.workqueue import WorkQueue
from localup.karmada.works import binding_key
from localup.karmada.writer import STATUS, Writer

log = structlog.get_logger()


class Collector:
    """Carries status upwards."""

    def __init__(self, mirror: Mirror, writer: Writer) -> None:
        self.queue = WorkQueue[Key]("collector", self._reconcile)
        self._mirror = mirror
        self._writer = writer
        mirror.works.listen(self._work_changed)
        mirror.bindings.listen(self._binding_changed)

    def _work_changed(self, old: Object | None, new: Object | None) -> None:
        if old is None or new is None or is_leaving(old) != is_leaving(new) or status_of(old) != status_of(new):
            self.queue.add(binding_key(new or old or {}))

    def _binding_changed(self, old: Object | None, new: Object | None) -> None:
        """Look at what had works when we were not there."""
        if old is None and new is not None and "aggregatedStatus" in status_of(new):
            self.queue.add(key_of(new))

    async def _reconcile(self, key: Key) -> None:
        binding = self._mirror.bindings.get(key)
        if binding is None or is_leaving(binding):
            return
        told = aggregated(binding, self._mirror.works_of(binding), now=time.time())
        binding = await self._writer.update(self._mirror.bindings, binding, told, part=STATUS)
        store = self._mirror.store_of(binding["spec"]["resource"])
        template = self._mirror.template_of(binding)
        if store is None or template is None or is_leaving(template) or owner_of(binding) != uid_of(template):
            return
        await self._writer.update(store, template, summed_up(template, binding, now=time.time()), part=STATUS)
