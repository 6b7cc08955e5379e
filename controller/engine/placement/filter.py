"""Finds the clusters that Karmada's scheduler would not filter out, and why it filters the others (C1).

Uses placement and cluster properties only, neither capacity nor readiness for new admissions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate, islice
from typing import Protocol

from controller.engine.state.clusters import (
    Affinity,
    Cluster,
    ClusterName,
    Placement,
    Spread,
    Taint,
    Toleration,
    matches,
)
from controller.engine.state.workloads import SchedulingRequirements

_PROPERTIES: Mapping[str, Callable[[Cluster], bool]] = {
    "provider": lambda cluster: bool(cluster.provider),
    "region": lambda cluster: bool(cluster.region),
    "zone": lambda cluster: bool(cluster.zones),
}

Selects = Callable[[Affinity, Cluster], bool]
"""Returns whether an affinity selects a cluster."""

_SizeOf = Callable[[Sequence[Cluster]], int]
"""Returns the size of a region from its clusters, best first."""

_CandidateKey = tuple[object, ...]
"""The key of candidates, without the clusters."""

_MAX_CACHED = 100_000
_MAX_CACHED_CLUSTERS = 5_000_000
"""Entries times clusters: each entry contains a result for every cluster, some 40 bytes."""
_MAX_CACHED_CHARACTERS = 50_000_000
"""Characters of the placements that results refer to: tenants write placements with thousands of names."""
_HEALTH_TAINTS = frozenset({"cluster.karmada.io/not-ready", "cluster.karmada.io/unreachable"})
_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


def has_property(cluster: Cluster, spread: Spread) -> bool:
    """Return whether *cluster* has the property by which *spread* groups; labels are not checked."""
    return spread.by not in _PROPERTIES or _PROPERTIES[spread.by](cluster)


def has_effective_spread(placement: Placement) -> bool:
    """Return whether the spread constraints are effective: static weights override them."""
    return bool(placement.spread) and not (placement.divided and placement.weights)


def unmet_constraint(placement: Placement, clusters: Sequence[Cluster]) -> Spread | None:
    """Return the constraint that *clusters* do not satisfy, or by which Karmada cannot group."""
    if not has_effective_spread(placement):
        return None
    by_field = {spread.by: spread for spread in placement.spread}
    region, cluster = by_field.get("region"), by_field.get("cluster")
    if region is not None:
        return _unmet_regions(region, cluster, clusters)
    if cluster is None:
        return placement.spread[0]
    return cluster if len(clusters) < cluster.minimum or not cluster.maximum else None


def select_clusters(placement: Placement, ranked: Sequence[Cluster], *, size: _SizeOf = len) -> tuple[Cluster, ...]:
    """Return the clusters of *ranked* that an undivided workload runs on, best first (D5).

    By region: the regions of the largest *size*, by default with most clusters, as few as the constraints allow; then
    the best cluster of each, then the best others.
    """
    if not ranked or unmet_constraint(placement, ranked) is not None:
        return ()
    if not has_effective_spread(placement):
        return tuple(ranked)
    by_field = {spread.by: spread for spread in placement.spread}
    cluster = by_field.get("cluster")
    max_clusters = cluster.maximum if cluster is not None else 0
    if "region" not in by_field:
        return tuple(ranked[:max_clusters])
    regions = _fewest_regions(by_field["region"], cluster, ranked, size=size)
    best = [region_clusters[0] for region_clusters in regions]
    rest = [candidate for candidate in ranked if any(candidate in region_clusters[1:] for region_clusters in regions)]
    return (*best, *rest[: max(max_clusters - len(best), 0)])


def _unmet_regions(region: Spread, cluster: Spread | None, clusters: Sequence[Cluster]) -> Spread | None:
    if len(_regions(clusters)) < region.minimum or not region.maximum:
        return region
    if cluster is not None and not cluster.maximum and cluster.minimum > region.minimum:
        # Karmada may choose one cluster in each of more regions than `wanted_copies` counts.
        return cluster
    return None if _fewest_regions(region, cluster, clusters) else cluster or region


def _outside_largest_regions(requirements: SchedulingRequirements, clusters: Sequence[Cluster]) -> list[ClusterName]:
    """Return the *clusters* whose region Karmada's scheduler would not choose, whatever ``spec.clusters`` says.

    For a workload that is neither divided nor counted in replicas it compares regions by their number of clusters,
    with or without free capacity, and only then by the clusters that the binding names.
    """
    placement = requirements.placement
    by_field = {spread.by: spread for spread in placement.spread}
    if "region" not in by_field or placement.divided or requirements.replicas:
        return []
    chosen = _fewest_regions(by_field["region"], by_field.get("cluster"), clusters)
    least = min((len(members) for members in chosen), default=0)
    return [cluster.name for members in _regions(clusters) if len(members) < least for cluster in members]


def _regions(ranked: Sequence[Cluster], *, size: _SizeOf = len) -> list[list[Cluster]]:
    """Return the clusters by region: those of the largest *size* first, else in the order of their best cluster."""
    by_region: dict[str, list[Cluster]] = {}
    for cluster in ranked:
        by_region.setdefault(cluster.region, []).append(cluster)
    return sorted(by_region.values(), key=lambda members: -size(members))


def _fewest_regions(
    region: Spread, cluster: Spread | None, ranked: Sequence[Cluster], *, size: _SizeOf = len
) -> list[list[Cluster]]:
    """Return the fewest, largest regions that hold enough clusters; empty where none do."""
    regions = _regions(ranked, size=size)
    minimum = cluster.minimum if cluster is not None else 0
    for number, count in enumerate(accumulate(len(members) for members in regions), start=1):
        if count >= minimum and number >= region.minimum:
            return regions[:number] if number <= region.maximum else []
    return []


class Exclusion(StrEnum):
    """Why a cluster is no candidate: stable codes, the first that applies."""

    DELETING = "Deleting"
    AFFINITY_MISMATCH = "AffinityMismatch"
    API_NOT_ENABLED = "ApiNotEnabled"
    UNTOLERATED_TAINT = "UntoleratedTaint"
    SPREAD_PROPERTY_MISSING = "SpreadPropertyMissing"
    DATA_MISSING = "DataMissing"
    """It does not hold all data of the workload."""
    EVICTION_TASK = "EvictionTask"
    TOO_FEW_GROUPS = "TooFewGroups"
    """It is suitable, but there are fewer than a spread constraint's minimum."""
    MAX_GROUPS_MISSING = "MaxGroupsMissing"
    """It is suitable, but a spread constraint has no maximum, which to Karmada means none."""
    SMALLER_REGION = "SmallerRegion"
    """It is suitable, but Karmada chooses a region with more clusters."""
    RESERVED = "Reserved"
    """It is kept free for an advance reservation, and the workload is not expected to end before."""
    STARTUP_FAILED = "StartupFailed"
    """The workload or an equal one did not start on it, and the cluster has not changed since."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidate clusters by name, their affinity term, and why others are excluded.

    Where no term has any, *excluded* is that of the first one tried.
    """

    names: tuple[ClusterName, ...] = ()
    term: str = ""
    excluded: Mapping[ClusterName, Exclusion] = field(default_factory=dict)


def candidates(
    requirements: SchedulingRequirements,
    clusters: Iterable[Cluster],
    *,
    as_if_usable: bool = False,
    selects: Selects = matches,
) -> Candidates:
    """Return the clusters that Karmada's scheduler would not filter out for *requirements*.

    Of ordered affinities, the first term with a candidate counts, from the observed
    one on. *as_if_usable* ignores what passes with time (C5): deletion, missing
    readiness, eviction tasks, exclusion after a failed start (R1), and advance reservations (O11).
    """
    ordered = sorted(clusters, key=lambda cluster: cluster.name)
    tried: list[Candidates] = []
    for term, affinities in _terms(requirements):
        selected = [
            affinities is None or any(selects(affinity, cluster) for affinity in affinities) for cluster in ordered
        ]
        result = _of_term(requirements, ordered, selected, as_if_usable=as_if_usable)
        if result.names:
            return (
                Candidates(result.names, term, result.excluded)
                if as_if_usable
                else _without_excluded(requirements, result, term)
            )
        tried.append(Candidates((), term, result.excluded))
    return tried[0]


class FindCandidates(Protocol):
    """Finds the ``candidates`` of requirements."""

    def __call__(
        self, requirements: SchedulingRequirements, clusters: Sequence[Cluster], *, as_if_usable: bool = False
    ) -> Candidates:
        """Return the candidates among *clusters*."""


class CandidateCache:
    """Cached candidates; only what a change of a cluster concerns is evaluated again.

    Requirements that differ only in amounts have the same candidates.
    """

    def __init__(self) -> None:
        self.steps = 0
        """How many evaluations of an affinity or a placement on a cluster were made."""
        self._clusters: dict[ClusterName, Cluster] = {}
        self._selected: dict[ClusterName, dict[int, bool]] = {}
        """Which affinities, by id, select each cluster."""
        self._affinities: dict[int, Affinity] = {}
        """Referenced so that the ids stay unique."""
        self._candidates: dict[_CandidateKey, tuple[Placement, Candidates]] = {}
        self._characters = 0
        """Characters of the placements since all results were dropped."""

    def of(
        self, requirements: SchedulingRequirements, clusters: Sequence[Cluster], *, as_if_usable: bool = False
    ) -> Candidates:
        """Return the ``candidates`` of *requirements* among *clusters*."""
        self._invalidate_changed(clusters)
        placement = requirements.placement
        key = (
            id(placement),
            requirements.api,
            bool(requirements.replicas),
            requirements.observed_term,
            requirements.evicting_from,
            requirements.data_clusters,
            requirements.excluded_clusters,
            requirements.reserved_clusters,
            requirements.current_clusters,
            as_if_usable,
        )
        known = self._candidates.get(key)
        if known is None or known[0] is not placement:
            self._characters += len(repr(placement))
            self._clear_if_large()
            self.steps += len(clusters)
            result = candidates(requirements, clusters, as_if_usable=as_if_usable, selects=self._selects)
            known = self._candidates[key] = placement, result
        return known[1]

    def _invalidate_changed(self, clusters: Sequence[Cluster]) -> None:
        """Discard results for clusters that changed in a property that candidates depend on."""
        if len(clusters) == len(self._clusters) and all(
            self._clusters.get(cluster.name) is cluster for cluster in clusters
        ):
            return
        before, self._clusters = self._clusters, {cluster.name: cluster for cluster in clusters}
        changed = {name for name in before.keys() | self._clusters.keys() if not self._is_as_before(before, name)}
        for name in changed:
            self._selected.pop(name, None)
        if changed:
            self._candidates.clear()

    def _is_as_before(self, before: Mapping[ClusterName, Cluster], name: ClusterName) -> bool:
        one, other = before.get(name), self._clusters.get(name)
        return one is not None and other is not None and _filtered_by(one) == _filtered_by(other)

    def _selects(self, affinity: Affinity, cluster: Cluster) -> bool:
        selected = self._selected.setdefault(cluster.name, {})
        known = selected.get(id(affinity))
        if known is None or self._affinities.get(id(affinity)) is not affinity:
            self.steps += 1
            self._affinities[id(affinity)] = affinity
            known = selected[id(affinity)] = matches(affinity, cluster)
        return known

    def _clear_if_large(self) -> None:
        """Drop results where they exceed the bounds, the oldest half of the candidates: placements come and go."""
        if self._characters > _MAX_CACHED_CHARACTERS:
            self._selected.clear()
            self._affinities.clear()
            self._candidates.clear()
            self._characters = 0
        most = min(_MAX_CACHED, _MAX_CACHED_CLUSTERS // max(len(self._clusters), 1))
        if len(self._affinities) > most:
            self._selected.clear()
            self._affinities.clear()
        if len(self._candidates) > most:
            for key in list(islice(self._candidates, len(self._candidates) // 2)):
                del self._candidates[key]


def _filtered_by(cluster: Cluster) -> tuple[object, ...]:
    """Return the properties of *cluster* that candidates depend on."""
    where = cluster.labels, cluster.provider, cluster.region, cluster.zones
    return *where, cluster.taints, cluster.enablements, cluster.deleting


def wanted_copies(requirements: SchedulingRequirements) -> int | None:
    """Return how many of its candidates run a full copy of an indivisible workload, ``None`` for all (D5).

    With a spread by region Karmada takes one cluster of each region first, so that
    there are never fewer than regions.
    """
    constraints = {spread.by: spread for spread in requirements.placement.spread}
    if not has_effective_spread(requirements.placement):
        return None
    regions = constraints["region"].minimum if "region" in constraints else 0
    if "cluster" not in constraints:
        return max(regions, 1) if regions else None
    return max(constraints["cluster"].maximum, regions, 1)


def _terms(requirements: SchedulingRequirements) -> Iterator[tuple[str, tuple[Affinity, ...] | None]]:
    """Yield each term's name with the affinities of which one must match, ``None`` without affinity."""
    placement = requirements.placement
    if placement.affinity is not None or not placement.terms:
        yield "", None if placement.affinity is None else (placement.affinity,)
        return
    names = [term.name for term in placement.terms]
    begin = names.index(requirements.observed_term) if requirements.observed_term in names else 0
    for term in placement.terms[begin:]:
        yield term.name, (term.affinity, *(term.overflow if requirements.replicas else ()))


def _of_term(
    requirements: SchedulingRequirements, ordered: Sequence[Cluster], selected: Sequence[bool], *, as_if_usable: bool
) -> Candidates:
    """Return the candidates among *ordered*, given which the term's affinities have *selected*."""
    excluded: dict[ClusterName, Exclusion] = {}
    passed: list[Cluster] = []
    for cluster, is_selected in zip(ordered, selected, strict=True):
        if not is_selected:
            excluded[cluster.name] = Exclusion.AFFINITY_MISMATCH
        elif (why := _exclusion(requirements, cluster, as_if_usable=as_if_usable)) is not None:
            excluded[cluster.name] = why
        else:
            passed.append(cluster)
    unmet = unmet_constraint(requirements.placement, passed)
    if unmet is not None:
        is_unbounded = unmet.by in {"cluster", "region"} and not unmet.maximum
        why = Exclusion.MAX_GROUPS_MISSING if is_unbounded else Exclusion.TOO_FEW_GROUPS
        excluded |= {cluster.name: why for cluster in passed}
        passed = []
    if not as_if_usable:
        # A larger region may become unusable, so a smaller one counts for C5.
        excluded |= dict.fromkeys(_outside_largest_regions(requirements, passed), Exclusion.SMALLER_REGION)
        passed = [cluster for cluster in passed if cluster.name not in excluded]
    return Candidates(tuple(cluster.name for cluster in passed), excluded=excluded)


def _exclusion(requirements: SchedulingRequirements, cluster: Cluster, *, as_if_usable: bool) -> Exclusion | None:
    """Return why *cluster* is excluded whatever the affinity; a workload's current clusters keep it."""
    placed = cluster.name in requirements.current_clusters
    if cluster.deleting and not as_if_usable:
        return Exclusion.DELETING
    if not placed and (why := _exclusion_unless_placed(requirements, cluster, as_if_usable=as_if_usable)) is not None:
        return why
    if not all(has_property(cluster, spread) for spread in requirements.placement.spread):
        return Exclusion.SPREAD_PROPERTY_MISSING
    if cluster.name in requirements.evicting_from and not as_if_usable:
        return Exclusion.EVICTION_TASK
    return None


def _exclusion_unless_placed(
    requirements: SchedulingRequirements, cluster: Cluster, *, as_if_usable: bool
) -> Exclusion | None:
    """Return why *cluster* is excluded, for a workload that is not placed on it."""
    if requirements.api not in cluster.enablements:
        return Exclusion.API_NOT_ENABLED
    taints = untolerated_taints(cluster, requirements.placement)
    if any(not (as_if_usable and taint.key in _HEALTH_TAINTS) for taint in taints):
        return Exclusion.UNTOLERATED_TAINT
    is_without_data = requirements.data_clusters is not None and cluster.name not in requirements.data_clusters
    return Exclusion.DATA_MISSING if is_without_data else None


def _without_excluded(requirements: SchedulingRequirements, result: Candidates, term: str) -> Candidates:
    """Return *result* without the clusters excluded after a failed start, and those kept free for reservations.

    Karmada does not know of these, so they are no reason to use a later term. Where Karmada chooses among the
    candidates, all of them are reserved if one is.
    """
    out = {name: Exclusion.STARTUP_FAILED for name in result.names if name in requirements.excluded_clusters}
    reserved = {reserved_cluster.cluster for reserved_cluster in requirements.reserved_clusters}.intersection(
        result.names
    )
    out |= dict.fromkeys(
        result.names if reserved and is_placed_by_karmada(requirements) else reserved, Exclusion.RESERVED
    )
    return Candidates(tuple(name for name in result.names if name not in out), term, {**result.excluded, **out})


def is_placed_by_karmada(requirements: SchedulingRequirements) -> bool:
    """Return whether Karmada chooses among the candidates, because a workload is divided or copied to several."""
    affinity = requirements.placement.affinity
    names_one = affinity is not None and len(affinity.names) == 1
    return requirements.is_divided or (wanted_copies(requirements) != 1 and not names_one)


def untolerated_taints(cluster: Cluster, placement: Placement) -> tuple[Taint, ...]:
    """Return the taints that exclude *cluster*."""
    return tuple(taint for taint in cluster.taints if _excludes(taint, placement.tolerations))


def _excludes(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return taint.effect in _EFFECTS and not any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value
