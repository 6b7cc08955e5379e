"""The live control plane read once, whole: for commands that only look, never for decisions that are written.

The lists are not of one moment, so an object may be missing that another one
names; the next look will have both.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Hashable
from functools import partial
from typing import Any, TypeVar

import msgspec

from controller.api.configuration import IntegrationRule, VolcanoGlobalConfiguration
from controller.api.events import Event, decode_event
from controller.api.hyperjobs import HYPERJOB_RESOURCES, HyperJob, HyperJobError, read_hyperjob
from controller.api.keys import (
    CLUSTER_RESOURCE_BINDINGS,
    CLUSTERS,
    EVENTS,
    JOBS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_BINDINGS,
)
from controller.cache.collection import Collection, Observation
from controller.cache.informer import DECODE_ERRORS
from controller.cache.store import Store
from controller.cli.report.explanation import PublishedEvent
from controller.cli.report.search import NotFoundError
from controller.cli.snapshot import Snapshot, take_snapshot
from controller.engine.clusters import ApiKind
from controller.engine.workloads import Workload
from controller.events.manifests import REPORTING_CONTROLLER
from controller.hyperjob.children import facts_of
from controller.hyperjob.sighting import see_hyperjob
from controller.kube import NO_PARAMETERS, Api, Forbidden, Gone, NotFound, Parameters

F = TypeVar("F", bound=Observation[Hashable])
T = TypeVar("T")

_ATTEMPTS = 3
#: So many events are shown of one workload.
_MAX_EVENTS = 5
_PAGE_SIZE = 500


class KindNotServedError(Exception):
    """The API server does not serve a kind that is needed; the message says which."""


class _ApiResource(msgspec.Struct):
    """One resource of an API group, as the server tells it."""

    name: str
    kind: str


class _ApiResourceList(msgspec.Struct):
    resources: list[_ApiResource] = msgspec.field(default_factory=list)


_API_RESOURCES = msgspec.json.Decoder(_ApiResourceList)


async def live_snapshot(api: Api, *, configuration: VolcanoGlobalConfiguration | None = None, now: int) -> Snapshot:
    """Return the control plane behind *api* as it is, with one decision round over it; nothing is written.

    Raises `ApiError`, and `UnservedError` for a control plane without the kinds we read.
    """
    return take_snapshot(await read_store(api, configuration or VolcanoGlobalConfiguration()), now)


async def find_hyperjob(api: Api, namespace: str, name: str) -> HyperJob:
    """Return the HyperJob of that name, upstream's spelling first; raise `NotFoundError` where there is none."""
    for resource in HYPERJOB_RESOURCES:
        try:
            raw = await api.get(resource.item_path(namespace, name))
        except NotFound:
            continue
        try:
            return read_hyperjob(msgspec.json.decode(raw))
        except (HyperJobError, msgspec.MsgspecError, RecursionError) as error:
            raise NotFoundError(f"HyperJob {namespace}/{name} cannot be read: {error}") from error
    raise NotFoundError(f"HyperJob {namespace}/{name} does not exist")


async def events_of(api: Api, workload: Workload) -> tuple[PublishedEvent, ...]:
    """Return what our controller has told of *workload* lately; nothing where events may not be read."""
    folder = EVENTS.item_path(workload.namespace or "default", "").rstrip("/")
    selector = f"regarding.kind={workload.kind},regarding.name={workload.name}"
    parameters = {"fieldSelector": selector}
    try:
        found = [event async for event in _pages(api, folder, decode_event, page=_PAGE_SIZE, parameters=parameters)]
    except (Forbidden, NotFound, Gone):
        return ()
    ours = [_published_event(each) for each in found if each.reporting_controller == REPORTING_CONTROLLER]
    return tuple(sorted(ours, key=lambda each: (each.last, each.reason)))[-_MAX_EVENTS:]


def _published_event(event: Event) -> PublishedEvent:
    last = event.last_seen.strftime("%Y-%m-%dT%H:%M:%SZ") if event.last_seen else ""
    return PublishedEvent(last, event.reason, event.note, event.count)


async def read_store(api: Api, configuration: VolcanoGlobalConfiguration, *, page: int = _PAGE_SIZE) -> Store:
    """Return a store that holds every object of the kinds that decisions depend on, listed *page* at a time."""
    store = Store(configuration)
    sinks: list[tuple[str, Collection[Any]]] = [
        (CLUSTERS.path, store.clusters),
        (QUEUES.path, store.queues),
        (PRIORITY_CLASSES.path, store.priority_classes),
        (JOBS.path, store.jobs),
        *[(await _list_path(api, rule), store.templates(_api_kind(rule))) for rule in configuration.integrations],
        # Last, so that the templates of nearly all of them are there.
        (RESOURCE_BINDINGS.path, store.bindings),
        (CLUSTER_RESOURCE_BINDINGS.path, store.cluster_bindings),
    ]
    for path, collection in sinks:
        collection.replace(await _list(api, path, collection, page=page))
    await _read_hyperjobs(api, store, page=page)
    return store


async def _read_hyperjobs(api: Api, store: Store, *, page: int) -> None:
    """Tell *store* which Jobs are parts of HyperJobs, as far as there are any and they may be listed."""
    for resource in HYPERJOB_RESOURCES:
        decode = partial(see_hyperjob, resource=resource)
        try:
            found = [seen async for seen in _pages(api, resource.path, decode, page=page)]
        except (Forbidden, NotFound, Gone):
            continue
        store.expect_hyperjobs()
        for seen in found:
            store.hyperjob_changed(seen.uid, facts_of(seen))


async def _list(api: Api, path: str, collection: Collection[F], *, page: int) -> list[F]:
    """Return all that *path* lists, page by page; begin anew when the list expires between two of them."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return [facts async for facts in _pages(api, path, collection.decode, page=page)]
        except Gone:
            if attempt == _ATTEMPTS:
                raise
        except NotFound as error:
            raise KindNotServedError(
                f"the control plane does not serve {path}; install the definition of its kind"
            ) from error
    raise AssertionError("the last attempt returns or raises")


async def _pages(
    api: Api, path: str, decode: Callable[[bytes], T], *, page: int, parameters: Parameters = NO_PARAMETERS
) -> AsyncIterator[T]:
    """Yield what *decode* makes of each object that *path* lists; one that cannot be read hides no other."""
    token = ""
    while True:
        answer = await api.list_page(path, parameters, limit=page, token=token)
        for item in answer.items or ():
            with contextlib.suppress(DECODE_ERRORS):
                yield decode(bytes(item))
        token = answer.metadata.continue_token
        if not token:
            return


async def _list_path(api: Api, rule: IntegrationRule) -> str:
    """Return the path that lists the kind of *rule*, whose plural only the server knows."""
    root = f"/apis/{rule.api_version}" if rule.group else f"/api/{rule.api_version}"
    unserved = KindNotServedError(
        f"the control plane does not serve {rule.kind} of {rule.api_version}, which `workloads` names"
    )
    try:
        group = _API_RESOURCES.decode(await api.get(root))
    except NotFound as error:
        raise unserved from error
    plurals = [each.name for each in group.resources if each.kind == rule.kind and "/" not in each.name]
    if not plurals:
        raise unserved
    return f"{root}/{plurals[0]}"


def _api_kind(rule: IntegrationRule) -> ApiKind:
    return ApiKind(rule.api_version, rule.kind)
