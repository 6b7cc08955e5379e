"""Tracks Volcano Jobs without a binding: no policy selects them, or another binding has the name of theirs."""

from collections.abc import Iterator

from controller.api.keys import JOBS, binding_name
from controller.cache.objects import VOLCANO_JOB, BindingKey, CachedBinding, CachedTemplate, TemplateKey

_MAX_COLLISIONS = 10_000


def colliding_job_key(binding: CachedBinding) -> TemplateKey:
    """Return the key of the Volcano Job that might need the same binding name."""
    return TemplateKey(VOLCANO_JOB, binding.template.namespace, binding.template.name)


def binding_key(job: CachedTemplate) -> BindingKey:
    """Return the key of the binding of *job*."""
    return BindingKey(job.key.namespace, binding_name(job.key.name, JOBS.kind))


class NameCollisions:
    """Volcano Jobs that get no binding because Karmada gives it the name of another kind's binding.

    Their number is limited; the oldest is dropped first.
    """

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

    def discard(self, uid: str) -> None:
        """Forget the deleted Volcano Job *uid*, which may be large."""
        self._found.pop(uid, None)


class UnboundJobs:
    """Volcano Jobs without a binding: no policy selects them, or Karmada has not created the binding yet."""

    def __init__(self) -> None:
        self._keys: dict[TemplateKey, None] = {}
        self.newest_bound_at = 0
        """Latest creation time of a template that has got a binding, in milliseconds."""
        self.newest_binding_at = 0
        """Latest creation time of a binding, in milliseconds."""

    def __iter__(self) -> Iterator[TemplateKey]:
        return iter(tuple(self._keys))

    def update(self, job: TemplateKey, *, is_unbound: bool) -> None:
        """Add or remove *job*."""
        if is_unbound:
            self._keys[job] = None
        else:
            self._keys.pop(job, None)

    def on_bound(self, binding: CachedBinding, template: CachedTemplate | None) -> None:
        """Record how far Karmada has come with the creation of bindings."""
        self.newest_binding_at = max(self.newest_binding_at, binding.created_at)
        if template is not None:
            self.newest_bound_at = max(self.newest_bound_at, template.created_at)
