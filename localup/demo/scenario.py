"""Reads the scenario of the demo, and creates its objects: queues, clusters, policies, jobs and HyperJobs."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from controller.api.keys import CLUSTERS, JOBS, QUEUES, RUNTIME_ANNOTATION
from controller.engine.reasons import Reason
from controller.engine.state.resources import Resources, scale, total
from localup.api import Api
from localup.apply import Manifest, apply, create_namespace, read_manifests, wait_until
from localup.karmada.objects import new_object, nonempty
from localup.karmada.workloads import parse_workload

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
NAMESPACES: Final = ("ml", "team-a", "team-b", "ops")
_SCENARIO: Final = Path(__file__).with_name("scenario.yaml")
_MEMBERS: Final = Path(__file__).parent / "manifests" / "clusters.yaml"
_JOINING_CLUSTERS: Final = _MEMBERS.with_name("sites.yaml")
_QUEUES: Final = EXAMPLES / "queues.yaml"
_CLASSES: Final = EXAMPLES / "priority-classes.yaml"

#: With a real Karmada an API server is started for each member first.
_JOIN_SECONDS: Final = 120
_CLOSED: Final = "archive"


@dataclass(frozen=True, slots=True)
class DemoHyperJob:
    """A HyperJob of the demo, of either API group, with the pending reason that is expected before its admission."""

    manifest: Manifest
    expected_reason: Reason | None = None

    @property
    def namespace(self) -> str:
        """Return the namespace."""
        return str(self.manifest["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.manifest['metadata']['name']}"

    @property
    def path(self) -> str:
        """Return the path at which it is created."""
        return f"/apis/{self.manifest['apiVersion']}/namespaces/{self.namespace}/{self.manifest['kind'].lower()}s"


@dataclass(frozen=True, slots=True)
class DemoJob(DemoHyperJob):
    """A Volcano Job of the demo; its expected reason is permanent.

    *hyperjob* is the owning HyperJob as `namespace/name`; with *reclaims* other jobs must be evicted before it runs.
    The demo expects nothing of a job that a user submitted during the demo.
    """

    hyperjob: str = ""
    reclaims: bool = False
    is_user_submitted: bool = False

    @property
    def queue(self) -> str:
        """Return the name of its queue."""
        return str(self.manifest["spec"]["queue"])

    @property
    def requests(self) -> Resources:
        """Return the total requests of all pods."""
        return total(scale(task.pod, task.count) for task in parse_workload(self.manifest, run_time=0).tasks)


@dataclass(frozen=True, slots=True)
class ScenarioStep:
    """Jobs, HyperJobs and member clusters that are created together, and what is printed and done before.

    It starts *starts_at* seconds after the first step at the earliest; by *start_when* also not before the jobs of the
    previous step run, or all jobs are settled.
    """

    starts_at: float
    title: str
    jobs: Sequence[DemoJob] = ()
    hyperjobs: Sequence[DemoHyperJob] = ()
    clusters: Sequence[str] = ()
    start_when: Literal["", "running", "settled"] = ""
    enable_reclaim: bool = False


def scenario_steps() -> list[ScenarioStep]:
    """Return all steps in order of their start times."""
    return [
        ScenarioStep(
            step.get("at", 0),
            step["title"],
            [job for entry in step.get("jobs", ()) for job in _jobs(entry)],
            [_hyperjob(**entry) for entry in step.get("hyperjobs", ())],
            step.get("clusters", ()),
            step.get("when", ""),
            enable_reclaim=step.get("reclaim", False),
        )
        for step in yaml.safe_load(_SCENARIO.read_text())
    ]


def _jobs(entry: Mapping[str, Any]) -> Iterator[DemoJob]:
    """Yield the jobs of an entry: those of an example file, or numbered copies, whose run times rotate."""
    if "file" in entry:
        yield from map(DemoJob, read_manifests(EXAMPLES / entry["file"]))
        return
    spec = {
        name: value for name, value in entry.items() if name not in {"name", "copies", "runtime", "expect", "reclaims"}
    }
    runtimes = entry["runtime"] if isinstance(entry["runtime"], list) else [entry["runtime"]]
    reason = Reason(entry["expect"]) if "expect" in entry else None
    for number in range(1, entry.get("copies", 1) + 1):
        name, runtime = entry["name"].format(number), runtimes[(number - 1) % len(runtimes)]
        yield DemoJob(volcano_job(name, runtime=runtime, **spec), reason, reclaims=entry.get("reclaims", False))


def _hyperjob(file: str, expect: str | None = None) -> DemoHyperJob:
    """Return the HyperJob of an example file, in namespace ml by default."""
    (manifest,) = read_manifests(EXAMPLES / file)
    metadata = {"namespace": "ml", **manifest["metadata"]}
    return DemoHyperJob({**manifest, "metadata": metadata}, Reason(expect) if expect else None)


def volcano_job(name: str, queue: str, *, pods: int, runtime: str, **more: Any) -> Manifest:
    """Return a Volcano Job whose gang minimum is all of its pods; *name* has its namespace.

    *more* are `cpu` and `memory` requests of each pod, its `gpu` limit, and the job's `priority` class.
    """
    namespace, _, short = name.partition("/")
    requests = {name: str(more[name]) for name in ("cpu", "memory") if name in more}
    limits = {"nvidia.com/gpu": str(more["gpu"])} if "gpu" in more else {}
    resources = nonempty({"requests": requests, "limits": limits})
    container = {"name": "main", "image": "busybox", "command": ["train"], "resources": resources}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    classed = {"priorityClassName": more["priority"]} if "priority" in more else {}
    tasks = [{"name": "worker", "replicas": pods, "template": template}]
    return {
        **new_object(JOBS, short, namespace, annotations={RUNTIME_ANNOTATION: runtime}),
        "spec": {"queue": queue, "minAvailable": pods, "schedulerName": "volcano", **classed, "tasks": tasks},
    }


def create_objects(admin: Api) -> None:
    """Create everything that precedes the first job, and return when all clusters report a resource summary."""
    for namespace in NAMESPACES:
        create_namespace(admin, namespace)
    policies = [
        {**policy, "metadata": {**policy["metadata"], "namespace": namespace}}
        for policy in read_manifests(EXAMPLES / "policy.yaml")
        for namespace in NAMESPACES
    ]
    apply(admin, [*read_manifests(_MEMBERS, _QUEUES, _CLASSES), *policies])
    for queue in queues():
        state = "Closed" if queue == _CLOSED else "Open"
        admin.merge(f"{QUEUES.path}/{queue}/status", {"status": {"state": state}})
    _wait_for_summaries(admin)


def queues() -> list[str]:
    """Return the names of all queues in file order."""
    return [manifest["metadata"]["name"] for manifest in read_manifests(_QUEUES)]


def submit(tenant: Api, items: Iterable[DemoHyperJob]) -> None:
    """Submit jobs and HyperJobs as the tenant."""
    for item in items:
        tenant.create(item.path, item.manifest)


def write_configuration(folder: Path, *, reclaim: bool) -> Path:
    """Write the controller's VolcanoGlobalConfiguration into *folder* and return its path."""
    path = folder / "admission.yaml"
    rules = {"reclaim": {"enabled": True, "minRuntime": "0s", "gracePeriod": "0s"}} if reclaim else {}
    head = {"apiVersion": "config.volcano-global.io/v1alpha1", "kind": "VolcanoGlobalConfiguration"}
    path.write_text(json.dumps({**head, **rules}))
    return path


def join_clusters(admin: Api, clusters: Iterable[str]) -> None:
    """Create member clusters and return when they report a resource summary."""
    names = set(clusters)
    apply(admin, [manifest for manifest in read_manifests(_JOINING_CLUSTERS) if manifest["metadata"]["name"] in names])
    _wait_for_summaries(admin)


def _wait_for_summaries(admin: Api) -> None:
    wait_until(
        lambda: all("resourceSummary" in item.get("status", {}) for item in admin.get(CLUSTERS.path)["items"]),
        "clusters with a resource summary",
        seconds=_JOIN_SECONDS,
    )
