"""Selects and sorts the objects of a listing."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec

from controller.api.quantity import QuantityError, parse_quantity
from controller.cli.errors import InputError, NotFoundError
from controller.cli.input.labels import Selector, parse_selector
from controller.cli.input.names import split_name, without_kind
from controller.cli.input.snapshot import Snapshot, TemplateNames
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import ROOT, QueueName
from controller.engine.state.workloads import Workload

S = TypeVar("S", bound=msgspec.Struct)

_SUGGESTED = 3
_SHOWN = 5
_WITHOUT_VALUE = (True, 0.0, "")
"""The sort key of an object without the field; it comes last."""

_NOT_SORTABLE = frozenset({"path", "message", "remedy", "nextCycle", "start"})
_SORTED_BY = {"age": "since"}
"""Fields that are texts for people, and the field with the same order: the largest age is that of the first time."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects to list, and their order."""

    names: tuple[str, ...] = ()
    queue: QueueName | None = None
    namespace: str | None = None
    labels: Selector | None = None
    sort_by: tuple[str, ...] = ()
    """Path of a field of the JSON."""
    templates: Callable[[Selector, Snapshot], TemplateNames] | None = None
    """Returns the workloads' objects that a selector selects."""

    @classmethod
    def parse(
        cls,
        *,
        names: Sequence[str] | None = None,
        labels: str | None = None,
        sort_by: str | None = None,
        templates: Callable[[Selector, Snapshot], TemplateNames] | None = None,
    ) -> "Selection":
        """Return the selection of command line options; raise `InputError`."""
        return cls(
            names=tuple(names or ()),
            labels=parse_selector(labels) if labels else None,
            sort_by=_field_path(sort_by or ""),
            templates=templates,
        )

    def of_workloads(self, queue: str | None, namespace: str | None) -> "Selection":
        """Return the selection of the workloads of a queue, and those below it, in a namespace; ``None`` for all."""
        return replace(self, queue=QueueName(without_kind(queue)) if queue else None, namespace=namespace)

    @property
    def is_narrowed(self) -> bool:
        """Return whether an object may exist and not be selected."""
        return bool(self.names or self.queue or self.namespace or self.labels)

    def workloads(self, snapshot: Snapshot) -> Callable[[Workload], bool]:
        """Return whether a workload is selected; raise `NotFoundError` for a queue that does not exist."""
        queues = None
        if self.queue is not None:
            require_queue(self.queue, {*snapshot.engine.queues, *snapshot.engine.queues_with_pending(), ROOT})
            queues = queue_subtree(snapshot, self.queue)
        wanted = set(map(split_name, self.names))
        selected = self.templates(self.labels, snapshot) if self.labels and self.templates else None
        unknown = wanted - {
            (within, workload.name)
            for workload in snapshot.engine.workloads.values()
            for within in ("", workload.namespace)
        }
        if unknown:
            within, name = min(unknown)
            raise NotFoundError(f"workload {f'{within}/' if within else ''}{name} does not exist")
        return lambda workload: (
            (queues is None or workload.queue in queues)
            and self.namespace in {None, workload.namespace}
            and (not wanted or bool({("", workload.name), (workload.namespace, workload.name)} & wanted))
            and (selected is None or (workload.kind, workload.namespace, workload.name) in selected)
        )

    def queues(self, snapshot: Snapshot, reports: Iterable[S]) -> tuple[S, ...]:
        """Return the selected *reports* of queues, sorted; raise `NotFoundError` for an unknown name."""
        selected = self.templates(self.labels, snapshot) if self.labels and self.templates else frozenset()
        return self._by_name(reports, lambda name: ("Queue", "", name) in selected, "queue")

    def clusters(self, snapshot: Snapshot, reports: Iterable[S]) -> tuple[S, ...]:
        """Return the selected *reports* of clusters, sorted; raise `NotFoundError` for an unknown name."""
        labels = {cluster.name: cluster.labels for cluster in snapshot.engine.cluster_usage.clusters}
        selector = self.labels
        return self._by_name(
            reports,
            lambda name: selector is not None and selector.matches(labels.get(ClusterName(name), {})),
            "cluster",
        )

    def _by_name(self, reports: Iterable[S], has_labels: Callable[[str], bool], kind: str) -> tuple[S, ...]:
        named = [(str(report.name), report) for report in reports]  # type: ignore[attr-defined] # reports of named objects
        known = {name for name, _ in named}
        chosen = set(map(without_kind, self.names))
        for name in sorted(chosen):
            _require(name, known, kind)
        return self.sort(
            report
            for name, report in named
            if (not chosen or name in chosen) and (self.labels is None or has_labels(name))
        )

    def sort(self, items: Iterable[S]) -> tuple[S, ...]:
        """Return *items* in the requested order: numbers and amounts the largest first; raise `InputError`."""
        if not self.sort_by:
            return tuple(items)
        keyed = [(_sort_key(item, self.sort_by), item) for item in items]
        if all(key == _WITHOUT_VALUE for key, _ in keyed):
            _suggest_resource([item for _, item in keyed], self.sort_by)
        return tuple(item for _, item in sorted(keyed, key=lambda pair: pair[0]))


def queue_subtree(snapshot: Snapshot, name: QueueName) -> set[QueueName]:
    """Return a queue and those below it; of the root all queues, also unknown ones of workloads."""
    if name == ROOT:
        return {workload.queue for workload in snapshot.engine.workloads.values()} | set(snapshot.engine.queues)
    node = snapshot.shares.quota.tree.nodes.get(name)
    return {below.name for below in node.subtree()} if node else {name}


def require_queue(name: str, known: Iterable[str]) -> None:
    """Raise `NotFoundError` with similar names if the queue is not *known*."""
    _require(name, known, "queue")


def _require(name: str, known: Iterable[str], kind: str) -> None:
    names = sorted(known)
    if name not in names:
        near = get_close_matches(name, names, n=_SUGGESTED) or [other for other in names if other != ROOT]
        more = f" and {len(near) - _SHOWN} more" if len(near) > _SHOWN else ""
        there = f"; there is {', '.join(near[:_SHOWN])}{more}" if near else ""
        raise NotFoundError(f"{kind} {name} does not exist{there}")


def _field_path(text: str) -> tuple[str, ...]:
    """Return the path in *text*, which may be written as for kubectl: ``{.allocated.cpu}``."""
    path = text.strip("{}").lstrip(".")
    if not path:
        return ()
    head, dot, rest = path.partition(".")
    return (head, rest.strip("'\"[]").replace("\\.", ".")) if dot else (head,)


def _sort_key(item: msgspec.Struct, path: tuple[str, ...]) -> tuple[bool, float, str]:
    fields = {field.encode_name: field.name for field in msgspec.structs.fields(item)}
    sortable = sorted(fields.keys() - _NOT_SORTABLE)
    if path[0] not in sortable:
        raise InputError(f"--sort-by {'.'.join(path)}: there is no such field; write one of {', '.join(sortable)}")
    value: Any = getattr(item, fields[_SORTED_BY.get(path[0], path[0])])
    if isinstance(value, dict):
        if len(path) == 1:
            raise InputError(f"--sort-by {path[0]}: add a resource, such as {path[0]}.cpu")
        value = _amount(path[1], value.get(path[1]))
    elif len(path) > 1:
        raise InputError(f"--sort-by {'.'.join(path)}: {path[0]} has no fields")
    if isinstance(value, (int, float)):
        return False, -float(value), ""
    return _WITHOUT_VALUE if value is None or value is msgspec.UNSET else (False, 0, str(value))


def _suggest_resource(items: Sequence[msgspec.Struct], path: tuple[str, ...]) -> None:
    """Raise `InputError` if the resource in *path*, which no item has, is the end of a resource's name."""
    amounts = (value for item in items if isinstance(value := msgspec.to_builtins(item).get(path[0]), dict))
    meant = sorted({name for names in amounts for name in names if name.endswith(f"/{path[1]}")})
    if meant:
        raise InputError(f"--sort-by {'.'.join(path)}: did you mean {path[0]}.{' or '.join(meant)}?")


def _amount(resource: str, quantity: object) -> float | None:
    try:
        return None if quantity is None else float(parse_quantity(resource, str(quantity)))
    except QuantityError:
        return None
