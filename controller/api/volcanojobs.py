"""Wire types of a Volcano Job's spec inside a HyperJob; unknown fields are preserved.

`controller.api.jobs` decodes thousands of Jobs, and only the fields that are counted; these models decode a few and
encode them again.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from controller.api import jobs

#: Plugins that need a leader task, with its default name, which is also the flag that gives another.
LEADER_TASKS: Mapping[str, str] = {"mpi": "master", "pytorch": "master", "ray": "head"}

Event = Literal[
    "*",
    "PodPending",
    "PodRunning",
    "PodFailed",
    "PodEvicted",
    "Unknown",
    "TaskCompleted",
    "OutOfSync",
    "CommandIssued",
    "JobUpdated",
    "TaskFailed",
]


class PassthroughModel(BaseModel):
    """An object with preserved unknown fields."""

    model_config = ConfigDict(
        extra="allow", frozen=True, alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )


class Resources(PassthroughModel):
    """Requests and limits of a container."""

    requests: dict[str, str | int | float] = Field(default_factory=dict)
    limits: dict[str, str | int | float] = Field(default_factory=dict)


class TemplateContainer(PassthroughModel):
    """One container of a pod."""

    resources: Resources = Resources()
    env: tuple[dict[str, Any], ...] = ()


class PodSpec(PassthroughModel):
    """Spec of a pod."""

    containers: tuple[TemplateContainer, ...] = ()
    init_containers: tuple[TemplateContainer, ...] = ()
    priority_class_name: str = ""


class TemplatePods(PassthroughModel):
    """Pod template of a task; the Job's own CRD defines its fields."""

    model_config = ConfigDict(json_schema_extra={"x-opaque": True})

    spec: PodSpec = PodSpec()


class LifecyclePolicy(PassthroughModel):
    """Action on an event of a job or a task."""

    action: str | None = None
    event: Event | None = None
    events: tuple[Event, ...] | None = None
    exit_code: int | None = None
    timeout: str | None = None


def _action_on_completion(policies: Iterable[LifecyclePolicy]) -> str | None:
    """Return the action once a task has completed: that of the first policy for this event, as in Volcano."""
    events = {"TaskCompleted", "*"}
    return next((one.action for one in policies if events.intersection((one.event, *(one.events or ())))), None)


class DependsOn(PassthroughModel):
    """Tasks that must start before this one."""

    name: tuple[str, ...] | None = None
    iteration: str | None = None


class NetworkTopology(PassthroughModel):
    """How close to each other the pods must be in the network."""

    mode: Literal["hard", "soft"] = "hard"
    highest_tier_allowed: int | None = None
    highest_tier_name: str | None = None


class PartitionPolicy(PassthroughModel):
    """How a task is divided into partitions; the pods of a partition start together."""

    total_partitions: int | None = None
    partition_size: int | None = None
    min_partitions: int | None = None
    network_topology: NetworkTopology | None = None


class TemplateTask(PassthroughModel):
    """Equal pods of a job."""

    name: str = ""
    replicas: int = 0
    min_available: int | None = None
    max_retry: int | None = None
    policies: tuple[LifecyclePolicy, ...] | None = None
    topology_policy: Literal["none", "best-effort", "restricted", "single-numa-node"] | None = None
    depends_on: DependsOn | None = None
    partition_policy: PartitionPolicy | None = None
    template: TemplatePods = TemplatePods()

    @property
    def partition_step(self) -> int:
        """Number of pods that stay together when the task is divided: a partition, or one pod."""
        size = self.partition_policy.partition_size if self.partition_policy else None
        return size if size and size > 0 and self.replicas % size == 0 else 1

    @property
    def has_partitions(self) -> bool:
        """Whether its partition policy divides it into whole partitions, which may be single pods."""
        return self.partition_policy is not None and self.partition_policy.partition_size == self.partition_step

    @property
    def effective_min_available(self) -> int:
        """Number of pods of the task that must run, with the default."""
        policy = self.partition_policy
        partitions = jobs.PartitionPolicy(policy.partition_size or 0, policy.min_partitions or 0) if policy else None
        task = jobs.Task(replicas=self.replicas, min_available=self.min_available, partition_policy=partitions)
        return task.effective_min_available

    def resized(self, replicas: int, minimum: int | None) -> Self:
        """Return the task with *replicas* pods and that minimum; a minimum of partitions is scaled with them."""
        changes: dict[str, Any] = {"replicas": replicas}
        # A minimum of zero must be explicit: Volcano defaults a missing minimum to all pods.
        if self.min_available is not None or minimum == 0:
            changes["min_available"] = minimum
        policy = self.partition_policy
        if policy is not None and self.has_partitions:
            sizes: dict[str, Any] = {"total_partitions": replicas // self.partition_step}
            if policy.min_partitions:
                share = policy.min_partitions * replicas // self.replicas
                sizes["min_partitions"] = share if minimum is None else minimum // self.partition_step
            changes["partition_policy"] = policy.model_copy(update=sizes)
        return self.model_copy(update=changes)


class Volume(PassthroughModel):
    """A volume that all pods of a job mount."""

    mount_path: str
    volume_claim_name: str | None = None
    volume_claim: dict[str, Any] | None = None


class JobSpec(PassthroughModel):
    """Spec of a Volcano Job."""

    scheduler_name: str = ""
    min_available: int | None = None
    volumes: tuple[Volume, ...] | None = None
    tasks: tuple[TemplateTask, ...] = ()
    policies: tuple[LifecyclePolicy, ...] | None = None
    plugins: dict[str, list[str]] = Field(default_factory=dict)
    running_estimate: str | None = None
    queue: str = ""
    max_retry: int | None = None
    ttl_seconds_after_finished: int | None = None
    priority_class_name: str = ""
    min_success: int | None = Field(None, ge=1)
    network_topology: NetworkTopology | None = None

    def completed(self, plugins: Mapping[str, list[str]]) -> Self:
        """Return the spec with *plugins* in addition to its own, and with Volcano's default names of tasks."""
        changes: dict[str, Any] = {"plugins": {**plugins, **self.plugins}} if plugins else {}
        if not all(task.name for task in self.tasks):
            changes["tasks"] = tuple(
                task if task.name else task.model_copy(update={"name": jobs.default_task_name(index)})
                for index, task in enumerate(self.tasks)
            )
        return self.model_copy(update=changes) if changes else self

    @property
    def leader_tasks(self) -> frozenset[str]:
        """Names of the leader tasks of its plugins."""
        return frozenset(
            jobs.plugin_argument(self.plugins[plugin], name) or name
            for plugin, name in LEADER_TASKS.items()
            if plugin in self.plugins
        )

    @property
    def completing_tasks(self) -> tuple[bool, ...]:
        """Whether each task completes the job once its pods have succeeded, by a policy of its own or of the job."""
        return tuple(
            _action_on_completion((*(task.policies or ()), *(self.policies or ()))) == "CompleteJob"
            for task in self.tasks
        )

    @property
    def is_single_instance(self) -> tuple[bool, ...]:
        """Whether each task must exist once in all parts together.

        Such a task leads the other tasks of a plugin, or has one pod while other tasks have several.
        """
        leaders = self.leader_tasks
        has_several = any(task.replicas > 1 for task in self.tasks)
        return tuple(task.name in leaders or (task.replicas == 1 and has_several) for task in self.tasks)

    @property
    def divisible(self) -> tuple[TemplateTask, ...]:
        """Tasks with pods that are divided among the parts."""
        tasks = zip(self.tasks, self.is_single_instance, strict=True)
        return tuple(task for task, is_single in tasks if task.replicas > 0 and not is_single)

    @property
    def pods(self) -> int:
        """Number of pods to divide."""
        return sum(task.replicas for task in self.divisible)

    @property
    def total_pods(self) -> int:
        """Number of all pods, including tasks that exist once."""
        return sum(max(task.replicas, 0) for task in self.tasks)
