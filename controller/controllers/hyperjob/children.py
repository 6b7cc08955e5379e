"""Builds the objects of a part: a PropagationPolicy, and the Volcano Job that it propagates to one cluster.

Pure. The manifests contain only the fields that the controller owns; they are written by server-side apply. Names and
labels are upstream's.

A pod's rank among all pods of the HyperJob is ``HYPERJOB_RANK_OFFSET`` + ``VC_TASK_INDEX`` of Volcano's env plugin. A
plugin that needs a leader task (mpi, pytorch, ray) is set only on the part with the leader; the other parts get the
plugins that it implies, and the address of the leader in ``HYPERJOB_MASTER``.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from controller.api.hyperjob_validation import resize_template
from controller.api.hyperjobs import HyperJob, PartStatus, ReplicatedJob, manifest_hash
from controller.api.keys import (
    GROUP_ANNOTATION,
    HYPERJOB_KIND,
    HYPERJOB_NAME_LABEL,
    JOBS,
    PART_ANNOTATION,
    PREFERRED_CLUSTERS_ANNOTATION,
    PROPAGATION_POLICIES,
    REPLICATED_JOB_NAME_LABEL,
)
from controller.api.volcanojobs import LEADER_TASKS, JobSpec, TemplateContainer, TemplateTask
from controller.cache.objects import CachedHyperJob, TemplateKey, group_kind
from controller.cache.translate.units import to_milliseconds
from controller.controllers.hyperjob.observed import TERMINAL, ObservedHyperJob
from controller.controllers.hyperjob.pod_distribution import part_minimum, part_success_minimum, task_minimum
from controller.engine.state.clusters import ApiKind

#: Plugins that every part needs: task indices in the environment, and host names of pods.
_REQUIRED_PLUGINS = ("env", "svc")

#: Plugins that a leader's plugin implies, for parts without the plugin.
_REPLACEMENT_PLUGINS: Mapping[str, tuple[str, ...]] = {"mpi": ("ssh",), "pytorch": (), "ray": ()}

Manifest = dict[str, Any]
_ONE_CLUSTER = [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]
#: The highest: Karmada compares priorities of policies before it prefers those that name their object.
_POLICY_PRIORITY = 2**31 - 1
#: Fields of a Job and of its tasks that Volcano allows to change; any other change needs a new Job.
_MUTABLE = frozenset({"minAvailable", "priorityClassName"})
_MUTABLE_OF_TASK = frozenset({"minAvailable", "replicas"})


def plugins(template: JobSpec, present: Iterable[str]) -> dict[str, list[str]]:
    """Return the plugins of a part with the tasks *present*."""
    wanted = dict(template.plugins)
    lacks_leader = bool(template.leader_tasks) and template.leader_tasks.isdisjoint(present)
    for plugin in LEADER_TASKS if lacks_leader else ():
        if wanted.pop(plugin, None) is not None:
            wanted |= {implied: wanted.get(implied, []) for implied in _REPLACEMENT_PLUGINS[plugin]}
    return wanted | {plugin: wanted.get(plugin, []) for plugin in _REQUIRED_PLUGINS}


def variables(hyperjob: str, part: PartStatus, *, before: int, master: str) -> dict[str, str]:
    """Return the environment of the pods of one task; *before* is the number of pods in earlier tasks of the part."""
    variables = {
        "HYPERJOB_NAME": hyperjob,
        "HYPERJOB_PART": str(part.index),
        "HYPERJOB_PARTS": str(part.world_parts),
        "HYPERJOB_RANK_OFFSET": str(part.rank_offset + before),
        "HYPERJOB_WORLD_SIZE": str(part.world_size),
    }
    return variables | ({"HYPERJOB_MASTER": master} if master else {})


def with_environment(task: TemplateTask, variables: Mapping[str, str]) -> TemplateTask:
    """Return *task* with *variables* in the environment of all its containers; variables set by the user stay."""
    spec = task.template.spec
    changes = {"containers": tuple(_add_variables(container, variables) for container in spec.containers)}
    if spec.init_containers:
        changes["init_containers"] = tuple(_add_variables(container, variables) for container in spec.init_containers)
    template = task.template.model_copy(update={"spec": spec.model_copy(update=changes)})
    return task.model_copy(update={"template": template})


def _add_variables(container: TemplateContainer, variables: Mapping[str, str]) -> TemplateContainer:
    known = {variable.get("name") for variable in container.env}
    # They come first, so that the user's variables can refer to them.
    ours: list[dict[str, Any]] = [
        {"name": name, "value": value} for name, value in variables.items() if name not in known
    ]
    return container.model_copy(update={"env": (*ours, *container.env)})


@dataclass(frozen=True, slots=True)
class PartObjects:
    """The objects of one part."""

    part: PartStatus
    policy: Manifest
    job: Manifest
    template: str
    """Hash of the fields that the Job cannot change once it runs."""

    @property
    def name(self) -> str:
        """Name of both objects."""
        return self.part.name


def build_parts(hyperjob: HyperJob, parts: tuple[PartStatus, ...], skipped: Collection[str] = ()) -> list[PartObjects]:
    """Build the objects of all *parts*, in their order, except those in *skipped*."""
    jobs = {job.name: (job, resize_template(job)) for job in hyperjob.spec.replicated_jobs}
    group = _group_annotation(hyperjob, parts)
    parts_objects = []
    before: dict[str, tuple[int, ...]] = {}
    for part in parts:
        job, template = jobs[part.replicated_job]
        earlier = before.get(job.name, (0,) * len(part.pods))
        if job.split_policy is not None:
            before[job.name] = tuple(sum(pair) for pair in zip(earlier, part.pods, strict=True))
        if part.name in skipped:
            continue
        spec = _job_spec(
            hyperjob, job, _PartContext(template, part, earlier, _leader_host_name(hyperjob, job, template))
        )
        manifest = _job(hyperjob, job, part, spec=spec, group=group)
        parts_objects.append(
            PartObjects(part, _policy(hyperjob, part), manifest, manifest_hash(_immutable_fields(spec)))
        )
    return parts_objects


def minimum_parts(hyperjob: HyperJob, count: int) -> int:
    """Return how many of *count* parts must run: `minAvailable`, or all of them."""
    asked = hyperjob.spec.min_available
    return count if asked is None else min(max(asked, 1), count)


def hyperjob_key(hyperjob: HyperJob) -> TemplateKey:
    """Return the key by which claims name *hyperjob*."""
    kind = group_kind(ApiKind(hyperjob.resource.api_version, hyperjob.resource.kind))
    return TemplateKey(kind, hyperjob.metadata.namespace, hyperjob.metadata.name)


def cached_hyperjob(hyperjob: HyperJob, parts: tuple[PartStatus, ...], *, deleting: bool = False) -> CachedHyperJob:
    """Return what admission needs: which Jobs are the *parts* of *hyperjob*, and how many must start together."""
    return CachedHyperJob(
        namespace=hyperjob.metadata.namespace,
        created_at=to_milliseconds(hyperjob.metadata.creation_timestamp) or 0,
        split=_split_id(parts),
        parts=frozenset(part.name for part in parts),
        minimum=minimum_parts(hyperjob, len(parts)),
        finished=frozenset(part.name for part in parts if part.phase in TERMINAL),
        key=hyperjob_key(hyperjob),
        deleting=deleting,
    )


def cached_hyperjob_of(seen: ObservedHyperJob) -> CachedHyperJob | None:
    """Return the parts of an observed HyperJob, ``None`` while it has none or cannot be read."""
    if seen.hyperjob is None or seen.status.split is None or not seen.status.split.parts:
        return None
    return cached_hyperjob(seen.hyperjob, seen.status.split.parts, deleting=seen.deleting)


def _group_annotation(hyperjob: HyperJob, parts: tuple[PartStatus, ...]) -> str:
    """Return the HyperJob and split of a Job, so that a part of an earlier split is recognised."""
    return _to_json({"uid": hyperjob.metadata.uid, "split": _split_id(parts)})


def _split_id(parts: tuple[PartStatus, ...]) -> str:
    return manifest_hash([[part.name, part.cluster, part.pods] for part in parts])


@dataclass(frozen=True, slots=True)
class _PartContext:
    """A part with the template from which it is built."""

    template: JobSpec
    part: PartStatus
    before: tuple[int, ...]
    """Number of pods of each task in the parts before it."""
    master: str


def _leader_host_name(hyperjob: HyperJob, job: ReplicatedJob, template: JobSpec) -> str:
    """Return the host name of the leader pod, as Volcano's svc plugin publishes it."""
    leaders = template.leader_tasks
    leader = next((task.name for task in template.tasks if task.name in leaders), "")
    first = hyperjob.part_name(job, 0)
    return f"{first}-{leader}-0.{first}" if leader else ""


def _job_spec(hyperjob: HyperJob, job: ReplicatedJob, context: _PartContext) -> Manifest:
    template = context.template
    tasks = tuple(_tasks(hyperjob.metadata.name, context))
    changes: dict[str, Any] = {
        "tasks": tasks,
        "plugins": plugins(template, [task.name for task in tasks]),
    }
    if job.split_policy is not None or not template.min_available:
        # Explicit also where it is the default: what a webhook has set would not follow a changed number of pods.
        changes["min_available"] = part_minimum(template, sum(context.before), tasks)
    if job.split_policy is not None and template.min_success is not None:
        changes["min_success"] = part_success_minimum(template, sum(context.before), sum(context.part.pods))
    dumped: Manifest = template.model_copy(update=changes).model_dump(by_alias=True, exclude_unset=True, mode="json")
    return dumped


def _tasks(hyperjob: str, context: _PartContext) -> Iterator[TemplateTask]:
    """Yield the tasks of a part: those that have pods in it, and those without pods, which may get some later."""
    tasks = [
        (task, count, before)
        for task, count, before in zip(context.template.tasks, context.part.pods, context.before, strict=True)
        if count or not task.replicas
    ]
    present = {task.name for task, _, _ in tasks}
    counted = 0
    for task, count, before in tasks:
        resized = task if count == task.replicas else task.resized(count, task_minimum(task, before, count))
        environment = variables(hyperjob, context.part, before=counted, master=context.master)
        yield with_environment(_without_missing_dependencies(resized, present), environment)
        counted += count


def _without_missing_dependencies(task: TemplateTask, present: set[str]) -> TemplateTask:
    """Return *task* without dependencies on tasks that this part does not have."""
    names = task.depends_on.name if task.depends_on else None
    if not names or present.issuperset(names):
        return task
    names_present = tuple(name for name in names if name in present)
    depends = task.depends_on.model_copy(update={"name": names_present}) if task.depends_on and names_present else None
    return task.model_copy(update={"depends_on": depends})


def _job(hyperjob: HyperJob, job: ReplicatedJob, part: PartStatus, *, spec: Manifest, group: str) -> Manifest:
    annotations = {**hyperjob.part_annotations, GROUP_ANNOTATION: group}
    if job.cluster_names and not part.cluster:
        annotations[PREFERRED_CLUSTERS_ANNOTATION] = _to_json(list(job.cluster_names))
    manifest = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {**_metadata(hyperjob, part), "annotations": annotations},
        "spec": spec,
    }
    return _with_revision(manifest, part, template=manifest_hash(_immutable_fields(spec)))


def _policy(hyperjob: HyperJob, part: PartStatus) -> Manifest:
    placement: Manifest = {
        "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
        "spreadConstraints": _ONE_CLUSTER,
    }
    affinity = _affinity(hyperjob.spec.cluster_affinity or {}, part)
    if affinity:
        placement["clusterAffinity"] = affinity
    if hyperjob.spec.cluster_tolerations:
        placement["clusterTolerations"] = list(hyperjob.spec.cluster_tolerations)
    manifest = {
        "apiVersion": PROPAGATION_POLICIES.api_version,
        "kind": PROPAGATION_POLICIES.kind,
        "metadata": _metadata(hyperjob, part),
        "spec": {
            "priority": _POLICY_PRIORITY,
            "propagateDeps": True,
            "resourceSelectors": [{"apiVersion": JOBS.api_version, "kind": JOBS.kind, "name": part.name}],
            "placement": placement,
        },
    }
    return _with_revision(manifest, part)


def _affinity(asked: Mapping[str, Any], part: PartStatus) -> Manifest:
    if part.cluster:
        return {"clusterNames": [part.cluster]}
    if part.failed_on:
        return {**asked, "exclude": sorted({*asked.get("exclude", ()), *part.failed_on})}
    return dict(asked)


def _metadata(hyperjob: HyperJob, part: PartStatus) -> Manifest:
    owner = {
        "apiVersion": hyperjob.resource.api_version,
        "kind": HYPERJOB_KIND,
        "name": hyperjob.metadata.name,
        "uid": hyperjob.metadata.uid,
        "controller": True,
    }
    labels = {HYPERJOB_NAME_LABEL: hyperjob.metadata.name}
    if part.replicated_job:
        labels[REPLICATED_JOB_NAME_LABEL] = part.replicated_job
    return {
        "name": part.name,
        "namespace": hyperjob.metadata.namespace,
        "labels": labels,
        "ownerReferences": [owner],
    }


def _with_revision(manifest: Manifest, part: PartStatus, *, template: str = "") -> Manifest:
    """Return *manifest* with the applied revision, by which later changes are detected."""
    revision = {"index": part.index, "attempt": part.attempt, "template": template, "digest": manifest_hash(manifest)}
    metadata = manifest["metadata"]
    annotations = {**metadata.get("annotations", {}), PART_ANNOTATION: _to_json(revision)}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def _immutable_fields(spec: Manifest) -> Manifest:
    """Return the fields that a Volcano Job cannot change after its creation."""
    tasks = [_without(task, _MUTABLE_OF_TASK) for task in spec["tasks"]]
    return {**_without(spec, _MUTABLE), "tasks": tasks}


def _without(fields: Manifest, names: Collection[str]) -> Manifest:
    return {name: value for name, value in fields.items() if name not in names}


def _to_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
