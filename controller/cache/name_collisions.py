"""Finds Volcano Jobs that cannot get a binding because Karmada gives it the name of another kind's binding.

Pure.
"""

from collections.abc import Iterator

from controller.api.keys import JOBS, binding_name
from controller.cache.objects import VOLCANO_JOB, CachedBinding, CachedTemplate, ObjectKey, TemplateKey

_MAX_COLLISIONS = 10_000


def colliding_job_key(binding: CachedBinding) -> TemplateKey:
    """Return the key of the Volcano Job that might need the same binding name."""
    return TemplateKey(VOLCANO_JOB, binding.template.namespace, binding.template.name)


def binding_key(job: CachedTemplate) -> ObjectKey:
    """Return the key of the binding of *job*."""
    return ObjectKey(job.key.namespace, binding_name(job.key.name, JOBS.kind))


class NameCollisions:
    """The name collisions, at most a fixed number; the oldest is dropped first."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[CachedTemplate, CachedBinding]] = {}

    def __iter__(self) -> Iterator[tuple[CachedTemplate, CachedBinding]]:
        return iter(tuple(self._found.values()))

    def add(self, job: CachedTemplate, binding: CachedBinding) -> bool:
        """Record that *binding* has the name that the binding of *job* needs; return whether that is new."""
        if binding.key != binding_key(job) or binding.template == job.key:
            return False
        known = self._found.get(job.uid)
        self._found[job.uid] = job, binding
        while len(self._found) > _MAX_COLLISIONS:
            del self._found[next(iter(self._found))]
        return known is None or known[1].uid != binding.uid
