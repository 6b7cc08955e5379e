"""What a change of queues, clusters or jobs would change: the decisions of the next cycle, and forecasts of starts."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from console.model import Model
from console.reader import Reader
from console.views.forecasts import Start, start_of, visible_start
from console.views.listing import BadQueryError, ForbiddenError, Query, shown_snapshot
from controller.api.keys import CLUSTERS, JOBS, QUEUES, RESOURCE_BINDINGS, Resource, binding_name
from controller.cli.errors import InputError
from controller.cli.input.snapshot import Snapshot, plan_snapshot
from controller.cli.input.what_if import Changes, WhatIf, parse_what_if, refuse_identity
from controller.cli.input.yaml_loader import ParseError, load_documents
from controller.cli.render.amounts import format_time
from controller.cli.render.plan import DecisionReport, StartReport
from controller.cli.reports.forecast import start_forecasts
from controller.cli.reports.plan import plan_report, with_difference
from controller.engine.plan import Admit
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import Workload, WorkloadUid
from controller.forecast.run_times import RunTimes

if TYPE_CHECKING:
    from controller.kube.collection import Collection

#: Characters of the changes in an address.
_MAX_TEXT = 2_000
#: Fields of the objects in YAML, characters and values of one field, and characters of all as changes of one line,
#: after alias expansion.
_MAX_FIELDS, _MAX_FIELD_SIZE, _MAX_SIZE = 100, 4_000, 50_000
#: What tells a manifest from changes in lines.
_MANIFEST = re.compile(r"^\s*[{]|^(---|kind:|apiVersion:)", re.MULTILINE)
_NAME = re.compile(r"([a-z0-9][a-z0-9.-]{0,252})?/[a-z0-9][a-z0-9.-]{0,252}")
_PLAIN_STEP = re.compile(r"[A-Za-z0-9_-]+")
#: Decisions of the difference that are shown, added and removed ones each, and workloads with two forecasts.
_MAX_DECISIONS, _MAX_FORECASTS = 200, 40

_RESOURCES: Mapping[str, Resource] = {
    "queue": QUEUES,
    "cluster": CLUSTERS,
    "job": JOBS,
    "resourcebinding": RESOURCE_BINDINGS,
}


class ChangedDecision(msgspec.Struct, frozen=True, omit_defaults=True):
    """One decision that the changes bring or replace, or those about workloads of others together."""

    action: str
    queue: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    count: int = 1
    clusters: tuple[str, ...] = ()
    reason: str = ""


class ChangedStart(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """When a workload starts without and with the changes."""

    kind: str
    namespace: str
    name: str
    before: StartReport | None
    after: StartReport | None
    is_next: bool = False
    """Whether the next scheduling cycle admits it with the changes."""


class WhatIfView(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """The form, and the result of its changes."""

    time: str | None
    changes: str
    analysis: str = ""
    """``Running`` while the plan is made, ``Failed`` where that took too long."""
    problem: str = ""
    added: tuple[ChangedDecision, ...] = ()
    removed: tuple[ChangedDecision, ...] = ()
    omitted: int = 0
    """Decisions after those."""
    starts: tuple[ChangedStart, ...] = ()
    is_planned: bool = False
    notes: tuple[str, ...] = ()
    """Changes without effect."""


class Forecast(msgspec.Struct, frozen=True):
    """The forecasts of a workload without and with the changes."""

    kind: str
    namespace: str
    name: str
    before: Start | None
    after: Start | None
    is_next: bool = False
    """Whether the next scheduling cycle admits it with the changes."""


class Difference(msgspec.Struct, frozen=True):
    """What differs, for a reader of everything."""

    problem: str = ""
    added: tuple[DecisionReport, ...] = ()
    removed: tuple[DecisionReport, ...] = ()
    starts: tuple[Forecast, ...] = ()
    notes: tuple[str, ...] = ()
    omitted: int = 0
    """Decisions after those."""


def requested_changes(query: Query) -> tuple[WhatIf, ...]:
    """Return the changes of the parameter `change`, one in each line, or as YAML; raise `BadQueryError`."""
    text = query.values.get("change", "")
    if len(text) > _MAX_TEXT:
        raise BadQueryError(f"the changes are longer than {_MAX_TEXT} characters")
    try:
        is_manifest = _MANIFEST.search(text) is not None
        changes = tuple(_manifest_changes(text)) if is_manifest else parse_what_if(text.splitlines())
    except InputError as error:
        raise BadQueryError(str(error).replace("--what-if: ", "")) from error
    for change in changes:
        if not _NAME.fullmatch(f"{change.namespace}/{change.name}"):
            raise BadQueryError(f"{change.target!r} is not the name of an object")
    return changes


def _manifest_changes(text: str) -> Iterator[WhatIf]:
    """Yield a change for each field of the objects in *text*, as a merge patch has them: a list is one field.

    Of the metadata only labels and annotations are fields: the object of the control plane has the rest.
    """
    number = size = 0
    try:
        for document in load_documents(text):
            for change in _object_changes(document) if document is not None else ():
                number, size = number + 1, size + len(change.text)
                if number > _MAX_FIELDS:
                    raise BadQueryError(f"the objects have more than {_MAX_FIELDS} fields; keep those that change")
                if size > _MAX_SIZE:
                    raise BadQueryError("the objects are too large after alias expansion")
                yield change
    except ParseError as error:
        raise BadQueryError(f"the changes are not valid YAML: {error}") from error
    if not number:
        raise BadQueryError("the objects have no field in spec, status, or the labels and annotations")


def _object_changes(document: object) -> Iterator[WhatIf]:
    body = document if isinstance(document, dict) else {}
    metadata = body.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    kind, name, namespace = body.get("kind"), metadata.get("name"), metadata.get("namespace", "")
    resource = _RESOURCES.get(kind.lower()) if isinstance(kind, str) else None
    if resource is None or body.get("apiVersion", resource.api_version) != resource.api_version:
        known = ", ".join(f"{supported.kind} of {supported.api_version}" for supported in _RESOURCES.values())
        raise BadQueryError(f"change objects of these kinds: {known}")
    if not isinstance(name, str) or not isinstance(namespace, str) or not _NAME.fullmatch(f"{namespace}/{name}"):
        raise BadQueryError("an object has no valid metadata.name or metadata.namespace")
    namespace = (namespace or "default") if resource.namespaced else ""
    parts: dict[str, object] = {part: body[part] for part in ("spec", "status") if part in body}
    if copied := {part: metadata[part] for part in ("labels", "annotations") if part in metadata}:
        parts["metadata"] = copied
    target = "/".join(part for part in (resource.kind.lower(), namespace, name) if part)
    for path, value in _fields(parts):
        if _size(value) > _MAX_FIELD_SIZE:
            raise BadQueryError(f"{'.'.join(path)} is too large after alias expansion")
        # Written as a change of one line, by which a message names it.
        steps = ".".join(step if _PLAIN_STEP.fullmatch(step) else f"'{step}'" for step in path)
        written = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        change = WhatIf(f"{target}.{steps}={written}", resource.kind.lower(), namespace, name, path, value)
        refuse_identity(change)
        yield change


def _fields(value: Mapping[str, object], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield the fields of *value* that are no mappings with members, with their paths."""
    for name, member in value.items():
        if isinstance(member, dict) and member:
            yield from _fields(member, (*path, name))
        else:
            yield (*path, name), member


def _size(value: object) -> int:
    """Return the number of characters and values in *value*, counted until they are too many."""
    size, parts = 0, [value]
    while parts and size <= _MAX_FIELD_SIZE:
        part = parts.pop()
        if isinstance(part, dict):
            parts += [*part, *part.values()]
        elif isinstance(part, list):
            parts += part
        size += len(part) if isinstance(part, str | dict | list) else 1
    return size


def check_rights(changes: Iterable[WhatIf], model: Model, reader: Reader) -> None:
    """Raise `ForbiddenError` for changes of objects that *reader* may not see."""
    for change in changes:
        if change.kind not in _RESOURCES or not reader.may_change(change, model):
            raise ForbiddenError(f"there is no {change.target} that you may see; change queues, clusters or jobs")


def changed_objects(changes: Iterable[WhatIf]) -> dict[str, str]:
    """Return the kinds of the objects that *changes* need, by their paths in the API."""
    paths: dict[str, str] = {}
    for change in changes:
        resource = RESOURCE_BINDINGS if change.completes_job else _RESOURCES[change.kind]
        name = binding_name(change.name, JOBS.kind) if change.completes_job else change.name
        paths[resource.item_path(change.namespace if resource.namespaced else "", name)] = resource.kind
    return paths


def difference(
    snapshot: Snapshot, requested: tuple[WhatIf, ...], objects: Mapping[str, tuple[str, bytes]]
) -> Difference:
    """Return what *requested* changes in the plan of *snapshot*; changes the store and engine, so it runs in a child.

    *objects* are the kinds and the contents of the objects that change, by path.
    """
    before = plan_report(snapshot)
    first = _first_pending(snapshot)
    starts = start_forecasts(snapshot, first)
    changes = Changes(requested, snapshot.now)
    store = snapshot.store
    sinks: dict[str, Collection[Any]] = {
        QUEUES.kind: store.queues,
        CLUSTERS.kind: store.clusters,
        JOBS.kind: store.jobs,
        RESOURCE_BINDINGS.kind: store.bindings,
    }
    try:
        for kind, raw in objects.values():
            sinks[kind].upsert(changes.decode(kind, raw, sinks[kind].decode))
        changes.check_all_used()
    except InputError as error:
        return Difference(problem=str(error).replace("--what-if: ", ""))
    store.mark_changed(snapshot.plan.originals)
    store.sync_to(snapshot.engine, snapshot.now)
    after = plan_snapshot(
        store, snapshot.engine, snapshot.now, snapshot.configuration, snapshot.run_times or RunTimes()
    )
    report = with_difference(plan_report(after), before, ()).what_if
    later = start_forecasts(after, first)
    admitted = {decision.workload.uid for decision in after.plan.decisions if isinstance(decision, Admit)}
    forecasts = (
        Forecast(
            workload.kind,
            workload.namespace,
            workload.name,
            _start(starts, workload.uid),
            _start(later, workload.uid),
            workload.uid in admitted,
        )
        for workload in first
    )
    changed = tuple(forecast for forecast in forecasts if forecast.is_next or forecast.before != forecast.after)
    notes = tuple(note.replace("--what-if: ", "") for note in changes.notes)
    if report is None:
        return Difference(starts=changed, notes=notes)
    changes_of_decisions = report.decisions.added, report.decisions.removed
    added, removed = (decisions[:_MAX_DECISIONS] for decisions in changes_of_decisions)
    omitted = sum(map(len, changes_of_decisions)) - len(added) - len(removed)
    return Difference("", added, removed, changed, notes, omitted)


def _first_pending(snapshot: Snapshot) -> list[Workload]:
    """Return the first pending workloads of each queue, at most so many that a forecast stays short."""
    queues = list(snapshot.engine.queues_with_pending())
    per_queue = max(_MAX_FORECASTS // max(len(queues), 1), 1)
    first = [workload for queue in queues for workload in snapshot.engine.pending_workloads(queue)[:per_queue]]
    return first[:_MAX_FORECASTS]


def _start(forecasts: Mapping[WorkloadUid, object], uid: WorkloadUid) -> Start | None:
    forecast = forecasts.get(uid)
    return start_of(forecast) if forecast is not None else None  # type: ignore[arg-type] # forecasts of starts


def what_if_view(model: Model, query: Query, reader: Reader, answer: Difference | None, status: str = "") -> WhatIfView:
    """Return the form with the difference in *answer*, without names that *reader* may not see."""
    snapshot = shown_snapshot(model)
    text = query.values.get("change", "")
    if answer is None:
        return WhatIfView(format_time(snapshot.now), text, status)
    starts = (
        ChangedStart(
            forecast.kind,
            forecast.namespace,
            forecast.name,
            visible_start(forecast.before, reader),
            visible_start(forecast.after, reader),
            forecast.is_next,
        )
        for forecast in answer.starts
        if reader.may_read(forecast.namespace)
    )
    return WhatIfView(
        time=format_time(snapshot.now),
        changes=text,
        problem=answer.problem,
        added=tuple(_visible(answer.added, model, reader)),
        removed=tuple(_visible(answer.removed, model, reader)),
        omitted=answer.omitted,
        starts=tuple(starts),
        is_planned=not answer.problem,
        notes=answer.notes,
    )


def _visible(decisions: Iterable[DecisionReport], model: Model, reader: Reader) -> Iterable[ChangedDecision]:
    """Yield the decisions about workloads of the reader, then the numbers of the others by action."""
    others: dict[str, int] = {}
    for decision in decisions:
        if not reader.may_read(decision.namespace):
            others[decision.action] = others.get(decision.action, 0) + 1
            continue
        yield ChangedDecision(
            decision.action,
            decision.queue if reader.may_name(QueueName(decision.queue), model) else "",
            decision.kind,
            decision.namespace,
            decision.name,
            clusters=tuple(cluster.name for cluster in decision.clusters),
            reason=decision.reason or "",
        )
    for action, count in sorted(others.items()):
        yield ChangedDecision(action, count=count)
