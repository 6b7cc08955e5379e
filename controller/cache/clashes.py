"""Volcano Jobs that can have no binding, because Karmada names that of another kind's object of their name alike.

Pure.
"""

from collections.abc import Iterator

from controller.api.keys import JOBS, binding_name
from controller.cache.facts import VOLCANO_JOB, BindingFacts, ObjectKey, TemplateFacts, TemplateKey

_MOST = 10_000


def namesake(binding: BindingFacts) -> TemplateKey:
    """Return the Volcano Job whose binding might bear the same name."""
    return TemplateKey(VOLCANO_JOB, binding.template.namespace, binding.template.name)


def own_binding(job: TemplateFacts) -> ObjectKey:
    """Return the name that the binding of *job* has."""
    return ObjectKey(job.key.namespace, binding_name(job.key.name, JOBS.kind))


class Clashes:
    """The pairs that were found, the newest so many."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[TemplateFacts, BindingFacts]] = {}

    def __iter__(self) -> Iterator[tuple[TemplateFacts, BindingFacts]]:
        return iter(tuple(self._found.values()))

    def add(self, job: TemplateFacts, binding: BindingFacts) -> bool:
        """Note that *binding* is in the way of *job*, if it is; say whether that is new."""
        if binding.key != own_binding(job) or binding.template == job.key:
            return False
        known = self._found.get(job.uid)
        self._found[job.uid] = job, binding
        while len(self._found) > _MOST:
            del self._found[next(iter(self._found))]
        return known is None or known[1].uid != binding.uid
