"""A Volcano Job as it is judged: the members that Volcano's rules speak of, and no others.

Apart from the Job that the controller watches: it reads what a job asks for, of ten thousands at once.
"""

from typing import Any

import msgspec

from controller.api.meta import Quantities

MPI = "mpi"

#: The most tasks of a new job. A task stands for any number of equal pods, so that jobs have a handful of them;
#: each one is checked, defaulted and charged on its own.
MAX_TASKS = 1000

#: The frameworks whose pods find each other by the service of the `svc` plugin.
NEED_SERVICE = ("tensorflow", MPI, "pytorch", "ray")


class Policy(msgspec.Struct, frozen=True, rename="camel"):
    """What Volcano does when something happens to a job or to a task."""

    action: str = ""
    event: str = ""
    events: tuple[str, ...] | None = None
    exit_code: int | None = None

    @property
    def all_events(self) -> tuple[str, ...]:
        """Return the events it is for, each once."""
        return tuple(dict.fromkeys((*(self.events or ()), *filter(None, (self.event,)))))


class Topology(msgspec.Struct, frozen=True, rename="camel"):
    """How near each other in the network pods must be."""

    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""

    @property
    def is_ambiguous(self) -> bool:
        """Say whether it names the highest tier twice."""
        return self.highest_tier_allowed is not None and bool(self.highest_tier_name)


class PartitionPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """How a task is cut into partitions that start together."""

    total_partitions: int = 0
    partition_size: int = 0
    min_partitions: int = 0
    network_topology: Topology | None = None


class DependsOn(msgspec.Struct, frozen=True, rename="camel"):
    """The tasks that must run before."""

    name: tuple[str, ...] | None = None


class Resources(msgspec.Struct, frozen=True):
    """What a container asks for and what is the most."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class Container(msgspec.Struct, frozen=True):
    """One container of a pod."""

    name: str = ""
    image: str = ""
    resources: Resources | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What runs in a pod."""

    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    restart_policy: str = ""
    dns_policy: str = msgspec.field(default="", name="dnsPolicy")
    host_network: bool = False
    priority_class_name: str = ""

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """Return the containers, then those that run before them."""
        return (*(self.containers or ()), *(self.init_containers or ()))


class PodTemplate(msgspec.Struct, frozen=True):
    """The pods of one task."""

    spec: PodSpec = PodSpec()


class Task(msgspec.Struct, frozen=True, rename="camel"):
    """Some equal pods of a job."""

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
        """Return how many of its pods must run, also where nobody has said so."""
        if self.min_available is not None:
            return self.min_available
        policy = self.partition_policy
        return policy.min_partitions * policy.partition_size if policy and policy.min_partitions > 0 else self.replicas


class Volume(msgspec.Struct, frozen=True, rename="camel"):
    """A claim that all pods mount."""

    mount_path: str = ""
    volume_claim_name: str = ""
    volume_claim: dict[str, Any] | None = None


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """What a job asks for."""

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
        """Return the PriorityClasses that it and the pods of its tasks name."""
        pods = (task.template.spec.priority_class_name for task in self.all_tasks)
        return frozenset({self.priority_class_name, *pods} - {""})

    @property
    def all_tasks(self) -> tuple[Task, ...]:
        """Return the tasks; none where there should be some."""
        return self.tasks or ()

    @property
    def has_too_many_tasks(self) -> bool:
        """Say whether there are more tasks than a new job may have."""
        return len(self.all_tasks) > MAX_TASKS

    @property
    def replicas(self) -> int:
        """Return how many pods all tasks have together."""
        return sum(task.replicas for task in self.all_tasks)


class State(msgspec.Struct, frozen=True):
    """Where a job stands."""

    phase: str = ""


class Status(msgspec.Struct, frozen=True):
    """What the clusters report of a job."""

    state: State | None = None


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Who it is."""

    name: str = ""
    generate_name: str = ""


class Job(msgspec.Struct, frozen=True):
    """One Volcano Job."""

    metadata: Metadata = Metadata()
    spec: Spec = Spec()
    status: Status | None = None

    @property
    def phase(self) -> str:
        """Return its phase, empty while no cluster has it."""
        return self.status.state.phase if self.status and self.status.state else ""


_JOB = msgspec.json.Decoder(Job)


def read_job(raw: msgspec.Raw) -> Job:
    """Return the Job in *raw*, or raise `ValueError` with what cannot be read of it."""
    return _JOB.decode(raw)
