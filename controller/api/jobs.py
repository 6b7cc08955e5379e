"""The Volcano Job, as far as it is read."""

import msgspec

from controller.api import lenient_decode
from controller.api.meta import WatchedObject
from controller.api.pods import PodTemplate


class PartitionPolicy(msgspec.Struct, rename="camel", frozen=True):
    """How a task is cut into partitions that start together."""

    partition_size: int = 0
    min_partitions: int = 0


class TaskSpec(msgspec.Struct, rename="camel", frozen=True):
    """Some equal pods of a job."""

    name: str = ""
    replicas: int = 0
    min_available: int | None = None
    partition_policy: PartitionPolicy | None = None
    template: PodTemplate = msgspec.field(default_factory=PodTemplate)


class JobSpec(msgspec.Struct, rename="camel", frozen=True):
    """What the job asks for and from which queue."""

    queue: str = ""
    min_available: int = 0
    priority_class_name: str = ""
    tasks: list[TaskSpec] = msgspec.field(default_factory=list)


class Job(WatchedObject, frozen=True):
    """One Volcano Job."""

    spec: JobSpec = msgspec.field(default_factory=JobSpec)


_JOB = msgspec.json.Decoder(Job)


def decode_job(raw: bytes | memoryview) -> Job:
    """Return the Volcano Job in *raw*."""
    return lenient_decode.decode(_JOB, raw)
