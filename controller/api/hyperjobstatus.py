"""Status of a HyperJob: upstream's fields in upstream's form, and additional fields."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Phase = Literal["Pending", "Admitted", "Running", "Completed", "Failed", "Suspended"]
PartPhase = Literal["Pending", "Admitted", "Running", "Completed", "Failed"]
FINISHED: frozenset[Phase] = frozenset({"Completed", "Failed"})
Int64 = Annotated[int, Field(json_schema_extra={"format": "int64"})]
Time = Annotated[datetime, Field(json_schema_extra={"format": "date-time"})]


class _StatusModel(BaseModel):
    model_config = ConfigDict(
        extra="ignore", frozen=True, alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )


class Condition(_StatusModel):
    """A Kubernetes condition."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = Field(max_length=32768)
    last_transition_time: Time
    observed_generation: Int64 | None = None


class JobState(_StatusModel):
    """The state of one Volcano Job, as Volcano reports it."""

    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: Time | None = None


class ReplicatedJobStatus(_StatusModel):
    """The status of one replicated job; the numbers count pods."""

    name: str
    job_states: dict[str, JobState] | None = None
    pending: int | None = None
    running: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    terminating: int | None = None
    unknown: int | None = None


class PartStatus(_StatusModel):
    """One part: its cluster, its size and its phase."""

    name: str
    """The name of its Volcano Job and of its PropagationPolicy."""
    replicated_job: str = ""
    index: int
    cluster: str = ""
    """The cluster that it is pinned to; empty where any cluster is allowed."""
    pods: tuple[int, ...] = ()
    """The number of pods of each task of the template in this part."""
    rank_offset: int = 0
    """The number of pods in the parts before this one."""
    world_size: int = 0
    """The number of pods in all parts."""
    world_parts: int = 0
    """The number of parts. This and the two fields above have the values passed to the part's pods."""
    phase: PartPhase
    running_on: str = ""
    """The cluster it was admitted to."""
    attempt: int = 0
    """The number of Volcano Jobs that were created under this name before the current one."""
    retries: int = 0
    failed_on: tuple[str, ...] = ()
    """The clusters where it failed before."""
    reason: str = ""
    """Why this cluster was chosen."""


class SplitStatus(_StatusModel):
    """The split from which the parts were created; it stays while a part has started and the spec is unchanged."""

    specification: str = ""
    """The hash of the spec that was split, to detect changes."""
    fits: bool = False
    """Whether it fitted into the clusters when it was computed."""
    restarts: int = 0
    """How often all parts were rolled back and started again."""
    parts: tuple[PartStatus, ...] = ()


class HyperJobStatus(_StatusModel):
    """The combined status of all parts."""

    conditions: tuple[Condition, ...] = Field(
        (), json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    )
    replicated_jobs_status: tuple[ReplicatedJobStatus, ...] = Field(
        (), json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )
    split_count: int | None = None
    """The number of Volcano Jobs."""
    observed_generation: Int64 | None = None
    phase: Phase | None = None
    message: str = ""
    """Why it is in that phase, and what would change it."""
    parts_running: str = ""
    """The number of running parts, of all parts: 1/2."""
    clusters: str = ""
    """The clusters of its parts."""
    finished_at: Time | None = None
    split: SplitStatus | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the phase is final."""
        return self.phase in FINISHED
