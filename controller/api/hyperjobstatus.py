"""What a HyperJob's status says: upstream's fields as upstream writes them, and ours beside them."""

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
    """What has become of one replicated job; the numbers count pods."""

    name: str
    job_states: dict[str, JobState] | None = None
    pending: int | None = None
    running: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    terminating: int | None = None
    unknown: int | None = None


class PartStatus(_StatusModel):
    """One part: where it goes, how large it is, and how far it is."""

    name: str
    """The name of its Volcano Job and of its PropagationPolicy."""
    replicated_job: str = ""
    index: int
    cluster: str = ""
    """Where it is pinned to; empty where any cluster will do."""
    pods: tuple[int, ...] = ()
    """How many pods of each task of the template it has."""
    rank_offset: int = 0
    """How many pods the parts before it have."""
    world_size: int = 0
    """How many pods all parts have."""
    world_parts: int = 0
    """How many parts there are; like the two above, as it was told to the part's pods."""
    phase: PartPhase
    running_on: str = ""
    """The cluster it was admitted to."""
    attempt: int = 0
    """Counts its Volcano Jobs, one after the other, under the same name."""
    retries: int = 0
    failed_on: tuple[str, ...] = ()
    """Clusters where it failed before."""
    reason: str = ""
    """Why it went where it did."""


class SplitStatus(_StatusModel):
    """The split that the parts were made of; it stays while a part has started and the spec is the same."""

    specification: str = ""
    """The digest of what was split, by which a change of the spec is noticed."""
    fits: bool = False
    """Whether it fitted into the clusters when it was made."""
    restarts: int = 0
    """How often all parts were rolled back and started again."""
    parts: tuple[PartStatus, ...] = ()


class HyperJobStatus(_StatusModel):
    """The one status of all parts."""

    conditions: tuple[Condition, ...] = Field(
        (), json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    )
    replicated_jobs_status: tuple[ReplicatedJobStatus, ...] = Field(
        (), json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )
    split_count: int | None = None
    """How many Volcano Jobs there are."""
    observed_generation: Int64 | None = None
    phase: Phase | None = None
    message: str = ""
    """Why it is in that phase, and what would change it."""
    parts_running: str = ""
    """How many parts run, of how many: 1/2."""
    clusters: str = ""
    """The clusters of its parts."""
    finished_at: Time | None = None
    split: SplitStatus | None = None

    @property
    def is_finished(self) -> bool:
        """Say whether nothing comes after it."""
        return self.phase in FINISHED
