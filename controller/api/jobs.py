"""Wire types of the Volcano Job, with the fields that are counted, and of templates of other kinds."""

from typing import Any

import msgspec

from controller.api.meta import WatchedObject, decode_watched
from controller.api.pods import PodTemplate


class PartitionPolicy(msgspec.Struct, rename="camel", frozen=True):
    """Partitions of a task; the pods of a partition start together."""

    partition_size: int = 0
    min_partitions: int = 0


class TaskSpec(msgspec.Struct, rename="camel", frozen=True):
    """Equal pods of a job."""

    name: str = ""
    replicas: int = 0
    min_available: int | None = None
    partition_policy: PartitionPolicy | None = None
    template: PodTemplate = msgspec.field(default_factory=PodTemplate)


class JobSpec(msgspec.Struct, rename="camel", frozen=True):
    """Requests and queue of a job."""

    queue: str = ""
    min_available: int = 0
    priority_class_name: str = ""
    tasks: list[TaskSpec] = msgspec.field(default_factory=list)


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
