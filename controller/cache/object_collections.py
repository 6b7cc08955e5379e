"""Collections of the newest version of every watched object, by kind, decoded and translated."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial
from itertools import chain

from controller.api.bindings import decode_binding
from controller.api.clusters import decode_cluster
from controller.api.jobs import decode_job, decode_template
from controller.api.queues import decode_priority_class, decode_queue
from controller.cache.integrations import Integration, Integrations
from controller.cache.interning import TemplateNames
from controller.cache.objects import (
    VOLCANO_JOB,
    BindingKey,
    CachedBinding,
    CachedCluster,
    CachedPriorityClass,
    CachedQueue,
    CachedTemplate,
    GroupKind,
    TemplateKey,
    group_kind,
)
from controller.cache.translate.bindings import BindingTranslator
from controller.cache.translate.clusters import translate_cluster
from controller.cache.translate.queues import translate_priority_class, translate_queue
from controller.cache.translate.templates import JobTranslator, TemplateTranslator
from controller.cache.unapplied_works import keep_progress
from controller.engine.state.clusters import ApiKind
from controller.kube.collection import Collection


def _cluster_scoped_key(_: str, name: str) -> str:
    return name


class ObjectCollections(ABC):
    """The sinks of the informers, which also take the objects in responses to our writes.

    ``decode`` of a collection turns raw JSON into the type that its other methods take.
    """

    def __init__(self, integrations: Integrations) -> None:
        self._integrations = integrations
        names = TemplateNames()
        self._bindings = BindingTranslator(self._integrations, names)
        jobs = JobTranslator(names)
        self.bindings = Collection(self._decode_binding, self._binding_changed, key=BindingKey, complete=keep_progress)
        self.cluster_bindings = Collection(
            self._decode_binding, self._binding_changed, key=BindingKey, complete=keep_progress
        )
        self.jobs = Collection(
            lambda raw: jobs.translate(decode_job(raw)), self._template_changed, key=partial(TemplateKey, VOLCANO_JOB)
        )
        self.queues = Collection(
            lambda raw: translate_queue(decode_queue(raw)), self._queue_changed, key=_cluster_scoped_key
        )
        self.clusters = Collection(
            lambda raw: translate_cluster(decode_cluster(raw)), self._cluster_changed, key=_cluster_scoped_key
        )
        self.priority_classes = Collection(
            lambda raw: translate_priority_class(decode_priority_class(raw)),
            self._class_changed,
            key=_cluster_scoped_key,
        )
        self._template_translator = TemplateTranslator()
        self._templates: dict[GroupKind, Collection[CachedTemplate]] = {VOLCANO_JOB: self.jobs}

    @property
    def is_complete(self) -> bool:
        """Whether every kind was listed completely at least once."""
        return (
            self.bindings.is_complete
            and self.cluster_bindings.is_complete
            and self.queues.is_complete
            and self.clusters.is_complete
            and self.priority_classes.is_complete
            and all(templates.is_complete for templates in self._templates.values())
        )

    @property
    def kinds(self) -> tuple[ApiKind, ...]:
        """All managed kinds."""
        return self._integrations.kinds

    def template(self, binding: CachedBinding) -> CachedTemplate | None:
        """Return the newest version of the object that *binding* names as its template."""
        templates = self._templates.get(binding.template.kind)
        return templates.get(binding.template) if templates is not None else None

    def templates(self, api: ApiKind) -> Collection[CachedTemplate]:
        """Return the sink for templates of a configured kind."""
        kind = group_kind(api)
        if kind not in self._templates:
            self._templates[kind] = Collection(
                lambda raw: self._decode_template(raw, api), self._template_changed, key=partial(TemplateKey, kind)
            )
        return self._templates[kind]

    def all_templates(self) -> Iterator[CachedTemplate]:
        """Yield the templates of all kinds."""
        return chain.from_iterable(self._templates.values())

    def forget_templates(self, api: ApiKind) -> None:
        """Drop the templates of a kind that is no longer managed."""
        known = self._templates.pop(group_kind(api), None)
        if known is not None:
            known.replace([])

    def _decode_binding(self, raw: bytes) -> CachedBinding:
        return self._bindings.translate(decode_binding(raw))

    def _decode_template(self, raw: bytes, api: ApiKind) -> CachedTemplate:
        return self._template_translator.translate(
            decode_template(raw), self._integrations.get(group_kind(api)) or Integration(api)
        )

    @abstractmethod
    def _binding_changed(self, before: CachedBinding | None, after: CachedBinding | None) -> None:
        """Take note of a change of a binding; ``None`` for an absent version."""

    @abstractmethod
    def _template_changed(self, before: CachedTemplate | None, after: CachedTemplate | None) -> None:
        """Take note of a change of a template."""

    @abstractmethod
    def _queue_changed(self, before: CachedQueue | None, after: CachedQueue | None) -> None:
        """Take note of a change of a queue."""

    @abstractmethod
    def _cluster_changed(self, before: CachedCluster | None, after: CachedCluster | None) -> None:
        """Take note of a change of a cluster."""

    @abstractmethod
    def _class_changed(self, before: CachedPriorityClass | None, after: CachedPriorityClass | None) -> None:
        """Take note of a change of a PriorityClass."""
