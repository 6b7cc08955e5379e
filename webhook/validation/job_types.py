"""Defines the fields of a Volcano Job that the webhook validates, in addition to those that the controller watches."""

from typing import Any

import msgspec

from controller.api.jobs import Container, Job, JobSpec, JobStatus, PartitionPolicy, PodSpec, PodTemplate, Task

MPI = "mpi"

#: Maximum number of tasks of a new job. Jobs have few tasks, since a task covers any number of equal pods; each task
#: is validated, defaulted and charged separately.
MAX_TASKS = 1000

#: Frameworks whose pods find each other by the service of the `svc` plugin.
NEED_SERVICE = ("tensorflow", MPI, "pytorch", "ray")


class LifecyclePolicy(msgspec.Struct, frozen=True, rename="camel"):
    """Action of Volcano on an event of a job or task."""

    action: str = ""
    event: str = ""
    events: tuple[str, ...] | None = None
    exit_code: int | None = None

    @property
    def all_events(self) -> tuple[str, ...]:
        """Return the distinct events of the policy."""
        return tuple(dict.fromkeys((*(self.events or ()), *filter(None, (self.event,)))))


class NetworkTopology(msgspec.Struct, frozen=True, rename="camel"):
    """Network topology constraint: the highest tier that the pods may span."""

    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""

    @property
    def is_ambiguous(self) -> bool:
        """Return whether the highest tier is specified twice."""
        return self.highest_tier_allowed is not None and bool(self.highest_tier_name)


class ReviewedPartitionPolicy(PartitionPolicy, frozen=True, rename="camel"):
    """Division of a task into partitions that start together."""

    total_partitions: int = 0
    network_topology: NetworkTopology | None = None


class DependsOn(msgspec.Struct, frozen=True, rename="camel"):
    """Tasks that must run before the task."""

    name: tuple[str, ...] | None = None


class ReviewedContainer(Container, frozen=True, rename="camel"):
    """A container of a pod."""

    name: str = ""


class ReviewedPodSpec(PodSpec, frozen=True, rename="camel"):
    """Spec of a pod."""

    containers: tuple[ReviewedContainer, ...] | None = None
    init_containers: tuple[ReviewedContainer, ...] | None = None
    restart_policy: str = ""
    dns_policy: str = ""
    host_network: bool = False

    @property
    def all_containers(self) -> tuple[ReviewedContainer, ...]:
        """Return the containers, followed by the init containers."""
        return (*(self.containers or ()), *(self.init_containers or ()))


class ReviewedPodTemplate(PodTemplate, frozen=True):
    """Template for the pods of a task."""

    spec: ReviewedPodSpec = ReviewedPodSpec()


class ReviewedTask(Task, frozen=True, rename="camel"):
    """A number of equal pods of a job."""

    max_retry: int = 0
    topology_policy: str = ""
    policies: tuple[LifecyclePolicy, ...] | None = None
    depends_on: DependsOn | None = None
    partition_policy: ReviewedPartitionPolicy | None = None
    template: ReviewedPodTemplate = ReviewedPodTemplate()


class Volume(msgspec.Struct, frozen=True, rename="camel"):
    """A volume claim that all pods mount."""

    mount_path: str = ""
    volume_claim_name: str = ""
    volume_claim: dict[str, Any] | None = None


class ReviewedJobSpec(JobSpec, frozen=True, rename="camel"):
    """Spec of a job."""

    scheduler_name: str = ""
    max_retry: int = 0
    ttl_seconds_after_finished: int | None = None
    plugins: dict[str, tuple[str, ...] | None] | None = None
    policies: tuple[LifecyclePolicy, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    network_topology: NetworkTopology | None = None
    tasks: tuple[ReviewedTask, ...] | None = None

    @property
    def priority_classes(self) -> frozenset[str]:
        """Return the PriorityClasses of the job and of the pods of its tasks."""
        pods = (task.template.spec.priority_class_name for task in self.all_tasks)
        return frozenset({self.priority_class_name, *pods} - {""})

    @property
    def all_tasks(self) -> tuple[ReviewedTask, ...]:
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


class ReviewedJob(Job, frozen=True):
    """A Volcano Job."""

    spec: ReviewedJobSpec = ReviewedJobSpec()
    status: JobStatus | None = None

    @property
    def phase(self) -> str:
        """Return the phase of the job, empty until a cluster reports it."""
        return self.status.state.phase if self.status and self.status.state else ""


_JOB = msgspec.json.Decoder(ReviewedJob)


def read_job(raw: msgspec.Raw) -> ReviewedJob:
    """Return the Job in *raw*, or raise `ValueError` if it cannot be decoded."""
    return _JOB.decode(raw)
