"""Observed claims and sources, which source binds a claim, and what the claims of a workload require.

Pure: events in, values out. Everything follows from the observed objects, so a new leader, a standby and the command
line see the same.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from controller.api.data_sources import (
    BOUND,
    PREFERRED,
    REQUEUE,
    DataSet,
    DataSourceClaimStatus,
    DataSourceCondition,
    DataSourceStatus,
    claim_violations,
    decode_claim,
    decode_source,
)
from controller.api.keys import DATA_MOVE_ATTRIBUTE, DATA_PLACEMENT_ATTRIBUTE, LOCATED_AT_ANNOTATION
from controller.cache.data_requirements import ClaimedData, DataRequirement
from controller.cache.index import Index
from controller.cache.objects import ObjectKey, TemplateKey, group_kind
from controller.cache.translate.units import parse_resource_version, to_milliseconds
from controller.engine.state.clusters import ApiKind, ClusterName

#: Maximum number of claims that are evaluated for one workload, and of those that are read, with deleted ones.
MAX_CLAIMS = 64
_MAX_READ_CLAIMS = 4 * MAX_CLAIMS

#: Longest message of a claim in the pending reason of its workload.
_MAX_MESSAGE = 200
_MAX_SLUG = 180

#: Reason of a claim's condition while its data were never asked for.
LOCATING = "Locating"


class ObservedClaim(NamedTuple):
    """A DataSourceClaim at one resourceVersion."""

    key: ObjectKey
    uid: str
    resource_version: int
    data_set: DataSet
    workload: TemplateKey
    created_at: int
    status: DataSourceClaimStatus
    is_preferred: bool = False
    on_move: str = ""
    """Empty: as the configuration says."""
    violation: str = ""
    deleting: bool = False
    finalizers: tuple[str, ...] = ()

    @property
    def condition(self) -> DataSourceCondition | None:
        """The condition of its binding."""
        return condition_of(self.status.conditions, BOUND)


class ObservedSource(NamedTuple):
    """A DataSource at one resourceVersion."""

    key: str
    uid: str
    resource_version: int
    data_set: DataSet
    clusters: tuple[ClusterName, ...]
    created_at: int
    status: DataSourceStatus
    located_at: int | None = None
    """When a plugin located it, in milliseconds; ``None`` if none did."""
    is_reclaimed: bool = False
    """Whether it is deleted with its last claim."""
    deleting: bool = False
    finalizers: tuple[str, ...] = ()


def observe_claim(raw: bytes) -> ObservedClaim:
    """Return the cached form of a DataSourceClaim."""
    claim = decode_claim(raw)
    meta, spec = claim.metadata, claim.spec
    reference = spec.workload
    return ObservedClaim(
        key=ObjectKey(meta.namespace, meta.name),
        uid=meta.uid,
        resource_version=parse_resource_version(meta.resource_version),
        data_set=spec.data_set,
        workload=TemplateKey(
            group_kind(ApiKind(reference.api_version, reference.kind)), meta.namespace, reference.name
        ),
        created_at=to_milliseconds(meta.creation_timestamp) or 0,
        status=claim.status,
        is_preferred=spec.attributes.get(DATA_PLACEMENT_ATTRIBUTE) == PREFERRED,
        on_move=spec.attributes.get(DATA_MOVE_ATTRIBUTE, ""),
        violation=next(claim_violations(claim, meta.namespace), ""),
        deleting=meta.deletion_timestamp is not None,
        finalizers=tuple(meta.finalizers),
    )


def observe_source(raw: bytes) -> ObservedSource:
    """Return the cached form of a DataSource."""
    source = decode_source(raw)
    meta, spec = source.metadata, source.spec
    return ObservedSource(
        key=meta.name,
        uid=meta.uid,
        resource_version=parse_resource_version(meta.resource_version),
        data_set=spec.data_set,
        clusters=tuple(ClusterName(name) for name in sorted(set(spec.locality.cluster_names))),
        created_at=to_milliseconds(meta.creation_timestamp) or 0,
        status=source.status,
        located_at=_parse_time(meta.annotations.get(LOCATED_AT_ANNOTATION, "")),
        is_reclaimed=spec.reclaim_policy == "Delete",
        deleting=meta.deletion_timestamp is not None,
        finalizers=tuple(meta.finalizers),
    )


def condition_of(conditions: Iterable[DataSourceCondition], kind: str) -> DataSourceCondition | None:
    """Return the condition of a type."""
    return next((condition for condition in conditions if condition.type == kind), None)


def source_name(data_set: DataSet) -> str:
    """Return the name of the DataSource of *data_set*: readable, and unique by a hash."""
    text = f"{data_set.system}-{data_set.type}-{data_set.name}".lower()
    slug = re.sub(r"[^a-z0-9]+", "-", text)[:_MAX_SLUG].strip("-") or "data"
    return f"{slug}-{hashlib.sha256(repr(tuple(data_set)).encode()).hexdigest()[:16]}"


class ClaimIndex:
    """The observed claims and sources, by what refers to them."""

    def __init__(self) -> None:
        self._claims: dict[ObjectKey, ObservedClaim] = {}
        self._sources: dict[str, ObservedSource] = {}
        self._by_workload: Index[TemplateKey, ObjectKey] = Index()
        self._by_data_set: Index[DataSet, ObjectKey] = Index()
        self._by_source: Index[str, ObjectKey] = Index()
        self._sources_by_data_set: Index[DataSet, str] = Index()

    @property
    def claims(self) -> Mapping[ObjectKey, ObservedClaim]:
        """All claims."""
        return self._claims

    @property
    def sources(self) -> Mapping[str, ObservedSource]:
        """All sources by name."""
        return self._sources

    @property
    def workloads(self) -> Iterable[TemplateKey]:
        """Workloads with claims."""
        return iter(self._by_workload)

    @property
    def data_sets(self) -> Iterable[DataSet]:
        """Data sets with claims."""
        return iter(self._by_data_set)

    def claim_changed(self, before: ObservedClaim | None, after: ObservedClaim | None) -> None:
        """Update the index with a changed claim."""
        if before is not None:
            self._claims.pop(before.key, None)
            self._by_workload.discard(before.workload, before.key)
            self._by_data_set.discard(before.data_set, before.key)
            self._by_source.discard(before.status.bound_data_source, before.key)
        if after is not None:
            self._claims[after.key] = after
            self._by_workload.add(after.workload, after.key)
            self._by_data_set.add(after.data_set, after.key)
            self._by_source.add(after.status.bound_data_source, after.key)

    def source_changed(self, before: ObservedSource | None, after: ObservedSource | None) -> None:
        """Update the index with a changed source."""
        if before is not None:
            self._sources.pop(before.key, None)
            self._sources_by_data_set.discard(before.data_set, before.key)
        if after is not None:
            self._sources[after.key] = after
            self._sources_by_data_set.add(after.data_set, after.key)

    def claims_of(self, data_set: DataSet) -> list[ObservedClaim]:
        """Return the usable claims of a data set."""
        return [claim for claim in self._claims_by_key(self._by_data_set.of(data_set)) if _is_usable(claim)]

    def is_claimed(self, data_set: DataSet) -> bool:
        """Return whether a data set has a usable claim."""
        return any(_is_usable(claim) for claim in self._claims_by_key(self._by_data_set.of(data_set)))

    def claims_at(self, source: str) -> list[ObservedClaim]:
        """Return the claims with a status that names *source*."""
        return list(self._claims_by_key(self._by_source.of(source)))

    def bound_to(self, source: str) -> list[ObservedClaim]:
        """Return the claims that are bound to *source*, by namespace and name."""
        bound = (claim for claim in self.claims_at(source) if self.bound_source(claim) is not None)
        return sorted(bound, key=lambda claim: claim.key)

    def source_of(self, data_set: DataSet) -> ObservedSource | None:
        """Return the source of a data set; of several, the first by name."""
        names = sorted(self._sources_by_data_set.of(data_set))
        return next((self._sources[name] for name in names if not self._sources[name].deleting), None)

    def bound_source(self, claim: ObservedClaim) -> ObservedSource | None:
        """Return the source that the status of *claim* names, if it still locates the data of the claim."""
        source = self._sources.get(claim.status.bound_data_source)
        is_bound = source is not None and claim.status.phase == BOUND and _is_usable(claim)
        if source is None or not is_bound or source.deleting or source.data_set != claim.data_set:
            return None
        return source

    def requirement(self, workload: TemplateKey, on_move: str) -> DataRequirement | None:
        """Return what the claims of *workload* require, ``None`` without claims; *on_move* is the default."""
        count = self._by_workload.count(workload)
        if count > _MAX_READ_CLAIMS:  # to read them all for each of them would take minutes for a list of many
            return _too_many(count)
        keys = sorted(self._by_workload.of(workload))
        claims = [claim for key in keys if not (claim := self._claims[key]).deleting]
        if not claims:
            return None
        if len(claims) > MAX_CLAIMS:
            return _too_many(len(claims))
        required = [claim for claim in claims if not claim.is_preferred]
        held = [frozenset(source.clusters) for claim in required if (source := self.bound_source(claim)) is not None]
        return DataRequirement(
            pending=next((text for claim in claims if (text := self._why_pending(claim))), ""),
            clusters=frozenset.intersection(*held) if held else None,
            preferred=self._preferred(claims),
            requeue=any((claim.on_move or on_move) == REQUEUE for claim in required),
            claimed=tuple(self._claimed(claim) for claim in claims),
        )

    def _claimed(self, claim: ObservedClaim) -> ClaimedData:
        source, data_set = self.bound_source(claim), claim.data_set
        name = f"{data_set.system} {data_set.type} {data_set.name}"
        clusters = source.clusters if source is not None else ()
        return ClaimedData(claim.key.name, name, source.key if source else "", clusters, claim.is_preferred)

    def _why_pending(self, claim: ObservedClaim) -> str:
        """Return why *claim* makes its workload wait, empty if it does not.

        Data that are only preferred are waited for until the first answer, be it a failure.
        """
        if self.bound_source(claim) is not None:
            return ""
        condition = claim.condition
        is_asked = condition is not None and condition.status == "False" and condition.reason != LOCATING
        if claim.is_preferred and is_asked and not claim.violation:
            return ""
        message = claim.violation or (condition.message if condition is not None and is_asked else "")
        return f"DataSourceClaim {claim.key.name}: {message[:_MAX_MESSAGE] or 'its data are being located'}"

    def _preferred(self, claims: Sequence[ObservedClaim]) -> tuple[ClusterName, ...]:
        counts: dict[ClusterName, int] = {}
        for claim in claims:
            source = self.bound_source(claim) if claim.is_preferred else None
            for name in source.clusters if source is not None else ():
                counts[name] = counts.get(name, 0) + 1
        return tuple(sorted(counts, key=lambda name: (-counts[name], name)))

    def _claims_by_key(self, keys: Iterable[ObjectKey]) -> Iterator[ObservedClaim]:
        return (self._claims[key] for key in keys)


def _parse_time(text: str) -> int | None:
    """Return an RFC 3339 time in milliseconds, ``None`` if it is none."""
    try:
        return to_milliseconds(datetime.fromisoformat(text))
    except ValueError:
        return None


def _too_many(claims: int) -> DataRequirement:
    return DataRequirement(f"it has {claims} DataSourceClaims; use at most {MAX_CLAIMS}")


def _is_usable(claim: ObservedClaim) -> bool:
    return not claim.deleting and not claim.violation
