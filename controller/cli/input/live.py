"""Reads the live control plane once, for read-only commands.

The lists are read one after another, so an object may refer to one that is missing.
Decisions that are written use the informers instead.
"""

from collections.abc import AsyncIterator, Callable, Hashable
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from controller.api.configuration import (
    ConfigurationError,
    IntegrationRule,
    VolcanoGlobalConfiguration,
    load_configuration,
    read_published,
)
from controller.api.events import Event, decode_event
from controller.api.hyperjobs import HYPERJOB_RESOURCES, HyperJob, HyperJobError, read_hyperjob
from controller.api.keys import (
    CLUSTER_RESOURCE_BINDINGS,
    CLUSTERS,
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    PRIORITY_CLASSES,
    PUBLISHED_CONFIGURATION,
    QUEUES,
    RESOURCE_BINDINGS,
    RUN_TIMES_NAME,
    RUN_TIMES_NAMESPACE,
)
from controller.api.meta import ConfigMap
from controller.cache.dynamic_informers import served_path
from controller.cache.store import Store
from controller.cli.errors import InputError, NotFoundError
from controller.cli.input.data import apply_claims, read_claims
from controller.cli.input.labels import Selector
from controller.cli.input.manifests import read_file
from controller.cli.input.snapshot import (
    ActiveConfiguration,
    ConfigurationSource,
    Snapshot,
    TemplateNames,
    take_snapshot,
)
from controller.cli.input.what_if import Changes
from controller.controllers.hyperjob.children import cached_hyperjob_of
from controller.controllers.hyperjob.observed import decode_hyperjob
from controller.engine.state.clusters import ApiKind
from controller.engine.state.workloads import Workload
from controller.forecast.codec import RunTimesError, decode_config_map
from controller.forecast.run_times import RunTimes
from controller.kube.client import NO_PARAMETERS, Api, Parameters
from controller.kube.collection import Collection, Observation
from controller.kube.errors import Forbidden, Gone, NotFound
from controller.kube.events import REPORTING_CONTROLLER
from controller.kube.watch_events import DECODE_ERRORS

F = TypeVar("F", bound=Observation[Hashable])
T = TypeVar("T")

_ATTEMPTS = 3
_PAGE_SIZE = 500

#: Kinds of a live control plane that ``--what-if`` may change, apart from those of the integrations.
_CHANGED_KINDS = tuple(
    resource.kind for resource in (CLUSTERS, QUEUES, JOBS, RESOURCE_BINDINGS, CLUSTER_RESOURCE_BINDINGS)
)


class KindNotServedError(Exception):
    """The API server does not serve a required kind; the message names it."""


async def live_snapshot(
    api: Api,
    configuration: ActiveConfiguration,
    *,
    now: int,
    namespace: str = RUN_TIMES_NAMESPACE,
    changes: Changes | None = None,
) -> Snapshot:
    """Return the current state of the control plane, after *changes*, with the plan of one scheduling cycle.

    The stored run times are in *namespace*. Raises `ApiError`, and `KindNotServedError` if the control plane lacks a
    required kind.
    """
    changes = changes or Changes()
    store = await read_store(api, configuration.values, changes=changes)
    changes.check_all_used([*_CHANGED_KINDS, *(rule.kind for rule in configuration.values.integrations)])
    claims = await read_claims(api)
    if claims is not None:
        apply_claims(store, claims, configuration.values)
    snapshot = take_snapshot(store, now, configuration, await read_run_times(api, namespace))
    return replace(snapshot, claims=claims)


async def read_run_times(api: Api, namespace: str) -> RunTimes | None:
    """Return the run times that the controller stored; ``None`` if there are none, or they may or can not be read."""
    try:
        return decode_config_map(await api.get(CONFIG_MAPS.item_path(namespace, RUN_TIMES_NAME)))[0]
    except (Forbidden, NotFound, RunTimesError):
        return None


async def active_configuration(api: Api, namespace: str) -> tuple[ActiveConfiguration, str]:
    """Return the configuration that the controller published, or the defaults and why they are used."""
    path = CONFIG_MAPS.item_path(namespace, PUBLISHED_CONFIGURATION)
    try:
        data = msgspec.json.decode(await api.get(path), type=ConfigMap).data
        return ActiveConfiguration(read_published(data)[0], ConfigurationSource.PUBLISHED), ""
    except NotFound:
        problem = f"ConfigMap {namespace}/{PUBLISHED_CONFIGURATION} does not exist"
    except Forbidden:
        problem = f"you may not read ConfigMap {namespace}/{PUBLISHED_CONFIGURATION}"
    except ConfigurationError as error:
        problem = f"this program does not know the configuration of the controller, use its version ({error})"
    except msgspec.MsgspecError as error:
        problem = f"ConfigMap {namespace}/{PUBLISHED_CONFIGURATION} cannot be read: {error}"
    return ActiveConfiguration(VolcanoGlobalConfiguration(), ConfigurationSource.DEFAULTS), problem


def configuration_of_file(path: Path) -> ActiveConfiguration:
    """Return the configuration in the file *path*; raise `InputError`."""
    try:
        return ActiveConfiguration(load_configuration(read_file(path).decode()), ConfigurationSource.FILE)
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or 'it cannot be read').lower()}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: it is not UTF-8 text") from error
    except ConfigurationError as error:
        raise InputError(f"{path}: {error}") from error


async def find_hyperjob(api: Api, namespace: str, name: str) -> HyperJob:
    """Return the HyperJob of that name, from Volcano's API group first; raise `NotFoundError` if there is none."""
    for resource in HYPERJOB_RESOURCES:
        try:
            raw = await api.get(resource.item_path(namespace, name))
        except NotFound:
            continue
        try:
            return read_hyperjob(msgspec.json.decode(raw))
        except (HyperJobError, msgspec.MsgspecError, RecursionError) as error:
            raise NotFoundError(f"HyperJob {namespace}/{name} cannot be read: {error}") from error
    raise NotFoundError(f"HyperJob {namespace}/{name} does not exist{await _similar_hyperjob(api, namespace, name)}")


async def _similar_hyperjob(api: Api, namespace: str, name: str) -> str:
    names = await _hyperjob_names(api)
    elsewhere = [f"{within}/{known}" for within, known in names if known == name]
    near = elsewhere or get_close_matches(f"{namespace}/{name}", [f"{within}/{known}" for within, known in names])
    return f"; did you mean {near[0]}?" if near else ""


async def _hyperjob_names(api: Api) -> list[tuple[str, str]]:
    """Return namespace and name of all HyperJobs that may be listed."""
    names: set[tuple[str, str]] = set()
    for resource in HYPERJOB_RESOURCES:
        try:
            async for item in api.list_items(resource.path, limit=_PAGE_SIZE, metadata_only=True):
                metadata = msgspec.json.decode(item)["metadata"]
                names.add((metadata["namespace"], metadata["name"]))
        except (Forbidden, NotFound, Gone):
            continue
    return sorted(names)


async def events_of(api: Api, workload: Workload) -> tuple[Event, ...]:
    """Return the events that the controller recorded for *workload*; none if events may not be listed."""
    folder = EVENTS.path_in(workload.namespace or "default")
    selector = f"regarding.kind={workload.kind},regarding.name={workload.name}"
    parameters = {"fieldSelector": selector}
    try:
        events = [event async for event in _pages(api, folder, decode_event, page=_PAGE_SIZE, parameters=parameters)]
    except (Forbidden, NotFound, Gone):
        return ()
    return tuple(event for event in events if event.reporting_controller == REPORTING_CONTROLLER)


async def selected_templates(api: Api, selector: Selector, configuration: VolcanoGlobalConfiguration) -> TemplateNames:
    """Return kind, namespace and name of the queues, jobs and other templates that *selector* selects."""
    paths = [("Queue", QUEUES.path), ("Job", JOBS.path)]
    paths += [(rule.kind, await _list_path(api, rule)) for rule in configuration.integrations]
    parameters = {"labelSelector": selector.text}
    names: set[tuple[str, str, str]] = set()
    for kind, path in paths:
        async for item in api.list_items(path, parameters, limit=_PAGE_SIZE, metadata_only=True):
            metadata = msgspec.json.decode(item)["metadata"]
            names.add((kind, metadata.get("namespace", ""), metadata["name"]))
    return frozenset(names)


async def read_store(
    api: Api, configuration: VolcanoGlobalConfiguration, *, page: int = _PAGE_SIZE, changes: Changes | None = None
) -> Store:
    """Return a store with all objects that decisions depend on, listed in pages of *page* objects."""
    store = Store(configuration)
    sinks: list[tuple[str, str, Collection[Any]]] = [
        (CLUSTERS.kind, CLUSTERS.path, store.clusters),
        (QUEUES.kind, QUEUES.path, store.queues),
        (PRIORITY_CLASSES.kind, PRIORITY_CLASSES.path, store.priority_classes),
        (JOBS.kind, JOBS.path, store.jobs),
        *[
            (rule.kind, await _list_path(api, rule), store.templates(_api_kind(rule)))
            for rule in configuration.integrations
        ],
        # Listed last, so that the templates of nearly all bindings are known.
        (RESOURCE_BINDINGS.kind, RESOURCE_BINDINGS.path, store.bindings),
        (CLUSTER_RESOURCE_BINDINGS.kind, CLUSTER_RESOURCE_BINDINGS.path, store.cluster_bindings),
    ]
    for kind, path, collection in sinks:
        decode = collection.decode
        if changes is not None and changes.concern(kind):
            decode = partial(changes.decode, kind, decode=collection.decode)
        collection.replace(await _list(api, path, decode, page=page))
    notes = await _read_hyperjobs(api, store, page=page)
    if changes is not None:
        changes.notes += notes
    return store


async def _read_hyperjobs(api: Api, store: Store, *, page: int) -> list[str]:
    """Add the HyperJobs to *store*, which needs them to know which Jobs are parts.

    Returns a note for each API group whose HyperJobs may not be listed.
    """
    notes = []
    for resource in HYPERJOB_RESOURCES:
        try:
            observed = await _list(api, resource.path, partial(decode_hyperjob, resource=resource), page=page)
        except KindNotServedError:
            continue
        except Forbidden:
            kind = f"{resource.plural}.{resource.group}"
            notes.append(f"you may not list {kind}: the plan admits parts of such HyperJobs one by one")
            continue
        store.expect_hyperjobs()
        for hyperjob in observed:
            store.hyperjob_changed(hyperjob.uid, cached_hyperjob_of(hyperjob))
    return notes


async def _list(api: Api, path: str, decode: Callable[[bytes], F], *, page: int) -> list[F]:
    """Return all objects of *path*, page by page; restart if the list expires between two pages."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return [facts async for facts in _pages(api, path, decode, page=page)]
        except Gone:
            if attempt == _ATTEMPTS:
                raise
        except NotFound as error:
            raise KindNotServedError(f"the control plane does not serve {path}; install the CRD") from error
    raise AssertionError("the last attempt returns or raises")


async def _pages(
    api: Api, path: str, decode: Callable[[bytes], T], *, page: int, parameters: Parameters = NO_PARAMETERS
) -> AsyncIterator[T]:
    """Yield each object of *path*, decoded; objects that cannot be decoded are skipped.

    Raises `InputError` for those that ``--what-if`` has made invalid.
    """
    async for item in api.list_items(path, parameters, limit=page):
        try:
            decoded = decode(item)
        except InputError:
            raise
        except DECODE_ERRORS:
            continue
        yield decoded


async def _list_path(api: Api, rule: IntegrationRule) -> str:
    path = await served_path(api, _api_kind(rule))
    if not path:
        raise KindNotServedError(
            f"the control plane does not serve {rule.kind} of {rule.api_version}, which `integrations` names"
        )
    return path


def _api_kind(rule: IntegrationRule) -> ApiKind:
    return ApiKind(rule.api_version, rule.kind)
