"""What DataSourceClaims require of workloads: which clusters hold their data, or why that is not known yet (C6).

Pure. The controller of claims determines the requirements; building a workload only looks them up.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from controller.cache.objects import (
    VOLCANO_JOB,
    CachedBinding,
    CachedHyperJob,
    CachedTemplate,
    TemplateKey,
    is_duplicated,
)
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import Affinity, ClusterName, Placement


class ClaimedData(NamedTuple):
    """One data set that a workload claims, for its explanation."""

    claim: str
    """Name of the DataSourceClaim."""
    data: str
    """System, type and name of the data set."""
    source: str = ""
    """The DataSource that it is bound to; empty if none."""
    clusters: tuple[ClusterName, ...] = ()
    is_preferred: bool = False


@dataclass(frozen=True, slots=True)
class DataRequirement:
    """What the DataSourceClaims of a workload require."""

    pending: str = ""
    """The claim that is not bound, and why; empty if none."""
    clusters: frozenset[ClusterName] | None = None
    """Clusters that hold all its required data; ``None`` if none is required."""
    preferred: tuple[ClusterName, ...] = ()
    """Clusters that hold preferred data, those with most of them first."""
    requeue: bool = False
    """Whether it follows its data after its admission."""
    claimed: tuple[ClaimedData, ...] = ()
    """All its data, by claim."""
    lacking: frozenset[ClusterName] = frozenset()
    """Known clusters that are not in *clusters*; set when it is looked up."""

    def joined(self, other: "DataRequirement") -> "DataRequirement":
        """Return the requirement of both, such as of a part and of its HyperJob."""
        both = [clusters for clusters in (self.clusters, other.clusters) if clusters is not None]
        return DataRequirement(
            self.pending or other.pending,
            frozenset.intersection(*both) if both else None,
            tuple(dict.fromkeys((*self.preferred, *other.preferred))),
            self.requeue or other.requeue,
            (*self.claimed, *other.claimed),
        )


NO_DATA = DataRequirement()


class DataRequirements:
    """Requirements by workload or HyperJob."""

    def __init__(self) -> None:
        self._required: dict[TemplateKey, DataRequirement] = {}

    def __len__(self) -> int:
        return len(self._required)

    def __iter__(self) -> Iterator[TemplateKey]:
        return iter(tuple(self._required))

    def update(self, key: TemplateKey, required: DataRequirement | None) -> bool:
        """Set the requirement of *key*, ``None`` if it has none; return whether that is a change."""
        if self._required.get(key) == required:
            return False
        if required is None:
            del self._required[key]
        else:
            self._required[key] = required
        return True

    def of_hyperjob(self, hyperjob: TemplateKey) -> DataRequirement:
        """Return the requirement of a HyperJob, which counts for all its parts."""
        return self._required.get(hyperjob, NO_DATA)

    def of(
        self,
        workload: TemplateKey,
        template: CachedTemplate | None,
        hyperjobs: Mapping[str, CachedHyperJob] | None,
        clusters: Iterable[ClusterName],
    ) -> DataRequirement:
        """Return the requirement of a workload joined with that of its HyperJob."""
        required = self._required.get(workload, NO_DATA)
        if template is not None and template.hyperjob is not None and hyperjobs is not None:
            hyperjob = hyperjobs.get(template.hyperjob.hyperjob)
            if hyperjob is not None and workload.name in hyperjob.parts and hyperjob.key is not None:
                required = required.joined(self.of_hyperjob(hyperjob.key))
        held = required.clusters
        if held is None:
            return required
        return replace(required, lacking=frozenset(name for name in clusters if name not in held))


def is_placed_by_karmada(binding: CachedBinding) -> bool:
    """Return whether Karmada chooses the clusters, so that the affinity must exclude those without the data."""
    is_divided = binding.placement.divided and binding.template.kind != VOLCANO_JOB
    return is_divided or is_duplicated(binding.placement)


def excludes(placement: Placement, clusters: Collection[ClusterName]) -> bool:
    """Return whether every affinity of *placement* excludes all *clusters*."""
    own = () if placement.affinity is None else (placement.affinity,)
    terms = [affinity for term in placement.terms for affinity in (term.affinity, *term.overflow)]
    return all(
        name in affinity.excluded or (affinity.names and name not in affinity.names)
        for affinity in (*own, *terms) or (Affinity(),)
        for name in clusters
    )


def pending_reason(binding: CachedBinding, data: DataRequirement) -> Refusal | None:
    """Return why a pending workload waits for its data."""
    if data.pending:
        return Refusal(Reason.DATA_NOT_READY, subject=data.pending)
    if not data.lacking or not is_placed_by_karmada(binding) or excludes(binding.placement, data.lacking):
        return None
    return Refusal(Reason.DATA_NOT_READY, subject="its affinity does not exclude the clusters without them yet")


def eviction_reason(binding: CachedBinding, data: DataRequirement) -> Refusal | None:
    """Return the reason to evict an admitted workload that is to follow its data.

    A workload that Karmada places follows by its affinity, without an eviction.
    """
    if not data.requeue or data.pending or data.clusters is None or is_placed_by_karmada(binding):
        return None
    targets = {target.name for target in binding.targets}
    return None if targets <= data.clusters else Refusal(Reason.DATA_NOT_READY, subject="they moved")
