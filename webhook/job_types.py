"""Defines the fields of a Volcano Job that the webhook validates.

They are separate from the Job that the controller watches, which decodes only what a job requests, for tens of
thousands of jobs.
"""

from typing import Any

import msgspec

from controller.api.meta import Quantities

MPI = "mpi"

#: Maximum number of tasks of a new job. Jobs have few tasks, since a task covers any number of equal pods; each task
#: is validated, defaulted and charged separately.
MAX_TASKS = 1000

#: Frameworks whose pods find each other by the service of the `svc` plugin.
NEED_SERVICE = ("tensorflow", MPI, "pytorch", "ray")


class Policy(msgspec.Struct, frozen=True, rename="camel"):
    """Action of Volcano on an event of a job or task."""

    action: str = ""
    event: str = ""
    events: tuple[str, ...] | None = None
    exit_code: int | None = None

    @property
    def all_events(self) -> tuple[str, ...]:
        """Return the distinct events of the policy."""
        return tuple(dict.fromkeys((*(self.events or ()), *filter(None, (self.event,)))))


class Topology(msgspec.Struct, frozen=True, rename="camel"):
    """Network topology constraint: the highest tier that the pods may span."""

    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""

    @property
    def is_ambiguous(self) -> bool:
        """Return whether the highest tier is specified twice."""
        return self.highest_tier_allowed is not None and bool(self.highest_tier_name)


class PartitionPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """Division of a task into partitions that start together."""

    total_partitions: int = 0
    partition_size: int = 0
    min_partitions: int = 0
    network_topology: Topology | None = None


class DependsOn(msgspec.Struct, frozen=True, rename="camel"):
    """Tasks that must run before the task."""

    name: tuple[str, ...] | None = None


class Resources(msgspec.Struct, frozen=True):
    """Requests and limits of a container."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class Container(msgspec.Struct, frozen=True):
    """A container of a pod."""

    name: str = ""
    image: str = ""
    resources: Resources | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Spec of a pod."""

    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    restart_policy: str = ""
    dns_policy: str = msgspec.field(default="", name="dnsPolicy")
    host_network: bool = False
    priority_class_name: str = ""

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """Return the containers, followed by the init containers."""
        return (*(self.containers or ()), *(self.init_containers or ()))


class PodTemplate(msgspec.Struct, frozen=True):
    """Template for the pods of a task."""

    spec: PodSpec = PodSpec()


class Task(msgspec.Struct, frozen=True, rename="camel"):
    """A number of equal pods of a job."""

    name: str = ""
    replicas: int = 0
    min_available: int | None = None
    max_retry: int = 0
    topology_policy: str = ""
    policies: tuple[Policy, ...] | None = None
    depends_on: DependsOn | None = None
    partition_policy: PartitionPolicy | None = None
    template: PodTemplate = PodTemplate()

    @property
    def effective_min_available(self) -> int:
        """Return how many pods of the task must run, by `minAvailable` or its default."""
        if self.min_available is not None:
            return self.min_available
        policy = self.partition_policy
        return policy.min_partitions * policy.partition_size if policy and policy.min_partitions > 0 else self.replicas


class Volume(msgspec.Struct, frozen=True, rename="camel"):
    """A volume claim that all pods mount."""

    mount_path: str = ""
    volume_claim_name: str = ""
    volume_claim: dict[str, Any] | None = None


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """Spec of a job."""

    queue: str = ""
    priority_class_name: str = ""
    scheduler_name: str = ""
    min_available: int = 0
    max_retry: int = 0
    ttl_seconds_after_finished: int | None = None
    plugins: dict[str, tuple[str, ...] | None] | None = None
    policies: tuple[Policy, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    network_topology: Topology | None = None
    tasks: tuple[Task, ...] | None = None

    @property
    def priority_classes(self) -> frozenset[str]:
        """Return the PriorityClasses of the job and of the pods of its tasks."""
        pods = (task.template.spec.priority_class_name for task in self.all_tasks)
        return frozenset({self.priority_class_name, *pods} - {""})

    @property
    def all_tasks(self) -> tuple[Task, ...]:
        """Return the tasks, or an empty tuple if the field is missing."""
        return self.tasks or ()

    @property
    def has_too_many_tasks(self) -> bool:
        """Return whether there are more tasks than a new job may have."""
        return len(self.all_tasks) > MAX_TASKS

    @property
    def replicas(self) -> int:
        """Return the number of pods of all tasks."""
        return sum(task.replicas for task in self.all_tasks)


class State(msgspec.Struct, frozen=True):
    """State of a job."""

    phase: str = ""


class Status(msgspec.Struct, frozen=True):
    """Status of a job as the clusters report it."""

    state: State | None = None


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Name of a job."""

    name: str = ""
    generate_name: str = ""


class Job(msgspec.Struct, frozen=True):
    """A Volcano Job."""

    metadata: Metadata = Metadata()
    spec: Spec = Spec()
    status: Status | None = None

    @property
    def phase(self) -> str:
        """Return the phase of the job, empty until a cluster reports it."""
        return self.status.state.phase if self.status and self.status.state else ""


_JOB = msgspec.json.Decoder(Job)


def read_job(raw: msgspec.Raw) -> Job:
    """Return the Job in *raw*, or raise `ValueError` if it cannot be decoded."""
    return _JOB.decode(raw)
