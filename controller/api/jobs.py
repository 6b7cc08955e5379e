"""Wire types of the Volcano Job, with the fields that are counted, and of templates of other kinds."""

from typing import Any

import msgspec

from controller.api.meta import WatchedObject, decode_watched
from controller.api.pods import PodTemplate


class PartitionPolicy(msgspec.Struct, rename="camel", frozen=True):
    """Partitions of a task; the pods of a partition start together."""

    partition_size: int = 0
    min_partitions: int = 0


class Task(msgspec.Struct, rename="camel", frozen=True):
    """Equal pods of a job."""

    name: str = ""
    replicas: int = 0
    min_available: int | None = None
    partition_policy: PartitionPolicy | None = None
    template: PodTemplate = PodTemplate()

    @property
    def partition_minimum(self) -> int:
        """Number of pods that the partition policy needs at once, 0 without one."""
        policy = self.partition_policy
        return policy.min_partitions * policy.partition_size if policy and policy.min_partitions > 0 else 0

    @property
    def effective_min_available(self) -> int:
        """Number of pods of the task that must run, by `minAvailable` or its default."""
        return (self.partition_minimum or self.replicas) if self.min_available is None else self.min_available


class JobSpec(msgspec.Struct, rename="camel", frozen=True):
    """Requests and queue of a job."""

    queue: str = ""
    min_available: int = 0
    priority_class_name: str = ""
    tasks: tuple[Task, ...] | None = None


class Job(WatchedObject, frozen=True):
    """A Volcano Job."""

    spec: JobSpec = msgspec.field(default_factory=JobSpec)


_JOB = msgspec.json.Decoder(Job)


def decode_job(raw: bytes | memoryview) -> Job:
    """Decode a Volcano Job."""
    return decode_watched(_JOB, raw)


class Template(WatchedObject, rename="camel", frozen=True):
    """An object of any kind; only the paths of its kind's integration are read in *spec*."""

    api_version: str = ""
    kind: str = ""
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


_TEMPLATE = msgspec.json.Decoder(Template)


def decode_template(raw: bytes | memoryview) -> Template:
    """Decode an object of any kind."""
    return decode_watched(_TEMPLATE, raw)
