"""Wire types of DataSourceClaims and DataSources, and the rules for a claim that both controller and webhook apply.

The API group is upstream's. Attributes with the prefix `volcano-global.io/` are ours and do not identify a data set.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from controller.api.keys import DATA_MOVE_ATTRIBUTE, DATA_PLACEMENT_ATTRIBUTE, OUR_PREFIX
from controller.api.meta import ObjectMeta, WatchedObject, decode_watched

PREFERRED = "Preferred"
REQUEUE = "Requeue"
#: Values of the attributes of ours; the first is the default.
PLACEMENTS = ("Required", PREFERRED)
ON_MOVE = ("Keep", REQUEUE)

#: Type of the only condition of a claim, and of a source.
BOUND, AVAILABLE = "Bound", "Available"

#: Limits of what a tenant writes into a claim, in characters.
_MAX_LENGTHS = {"system": 63, "dataSourceType": 63, "dataSourceName": 512}
_MAX_ATTRIBUTES = 32
_MAX_ATTRIBUTE_LENGTH = 256
_VALUES = {DATA_PLACEMENT_ATTRIBUTE: PLACEMENTS, DATA_MOVE_ATTRIBUTE: ON_MOVE}


class DataSet(NamedTuple):
    """Identity of a data set; sources with equal identities locate the same data."""

    system: str
    type: str
    name: str
    attributes: tuple[tuple[str, str], ...] = ()


class DataObjectMeta(ObjectMeta, frozen=True):
    """Metadata with finalizers, which upstream's controller adds."""

    finalizers: list[str] = msgspec.field(default_factory=list)


class WorkloadReference(msgspec.Struct, rename="camel", frozen=True):
    """The workload of a claim; without a namespace, in that of the claim."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""


class DataSourceCondition(msgspec.Struct, rename="camel", frozen=True):
    """A condition in a status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class DataSourceClaimSpec(msgspec.Struct, rename="camel", frozen=True):
    """Spec of a DataSourceClaim."""

    system: str = ""
    data_source_type: str = ""
    data_source_name: str = ""
    workload: WorkloadReference = WorkloadReference()
    attributes: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def data_set(self) -> DataSet:
        """The data set that it names."""
        return _data_set(self.system, self.data_source_type, self.data_source_name, self.attributes)


class DataSourceClaimStatus(msgspec.Struct, rename="camel", frozen=True):
    """Status of a DataSourceClaim."""

    phase: str = ""
    bound_data_source: str = ""
    conditions: list[DataSourceCondition] = msgspec.field(default_factory=list)


class DataSourceClaim(WatchedObject, frozen=True):
    """A workload needs a data set."""

    metadata: DataObjectMeta = msgspec.field(default_factory=DataObjectMeta)
    spec: DataSourceClaimSpec = msgspec.field(default_factory=DataSourceClaimSpec)
    status: DataSourceClaimStatus = msgspec.field(default_factory=DataSourceClaimStatus)


class Locality(msgspec.Struct, rename="camel", frozen=True):
    """Where a data set is."""

    cluster_names: list[str] = msgspec.field(default_factory=list)


class DataSourceSpec(msgspec.Struct, rename="camel", frozen=True):
    """Spec of a DataSource."""

    system: str = ""
    type: str = ""
    name: str = ""
    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    locality: Locality = msgspec.field(default_factory=Locality)
    reclaim_policy: str = ""

    @property
    def data_set(self) -> DataSet:
        """The data set that it locates."""
        return _data_set(self.system, self.type, self.name, self.attributes)


class ClaimReference(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """Reference to a claim in the status of its source."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class DataSourceStatus(msgspec.Struct, rename="camel", frozen=True):
    """Status of a DataSource."""

    claim_refs: list[ClaimReference] = msgspec.field(default_factory=list)
    bound_claims: int = 0
    conditions: list[DataSourceCondition] = msgspec.field(default_factory=list)


class DataSource(WatchedObject, frozen=True):
    """The clusters that hold a data set, as a plugin or an administrator says."""

    metadata: DataObjectMeta = msgspec.field(default_factory=DataObjectMeta)
    spec: DataSourceSpec = msgspec.field(default_factory=DataSourceSpec)
    status: DataSourceStatus = msgspec.field(default_factory=DataSourceStatus)


_CLAIMS = msgspec.json.Decoder(DataSourceClaim)
_SOURCES = msgspec.json.Decoder(DataSource)


def decode_claim(raw: bytes | msgspec.Raw) -> DataSourceClaim:
    """Decode a DataSourceClaim."""
    return decode_watched(_CLAIMS, bytes(raw))


def decode_source(raw: bytes) -> DataSource:
    """Decode a DataSource."""
    return decode_watched(_SOURCES, raw)


def claim_violations(claim: DataSourceClaim, namespace: str) -> Iterator[str]:
    """Yield why *claim* in *namespace* cannot be used, each with what to do."""
    spec = claim.spec
    yield from claim.decode_errors
    for field, text in zip(_MAX_LENGTHS, (spec.system, spec.data_source_type, spec.data_source_name), strict=True):
        if not 0 < len(text) <= _MAX_LENGTHS[field]:
            yield f"spec.{field} has {len(text)} characters; write 1 to {_MAX_LENGTHS[field]}"
    reference = spec.workload
    if not (reference.api_version and reference.kind and reference.name):
        yield "spec.workload: write apiVersion, kind and name of the workload"
    if reference.namespace not in {"", namespace}:
        yield (
            f"spec.workload.namespace is {reference.namespace[:63]!r}; a claim is for a workload of its own namespace, "
            f"{namespace!r}"
        )
    if len(spec.attributes) > _MAX_ATTRIBUTES:
        yield f"spec.attributes has {len(spec.attributes)} entries; use at most {_MAX_ATTRIBUTES}"
    for key, value in spec.attributes.items():
        if len(key) > _MAX_ATTRIBUTE_LENGTH or len(value) > _MAX_ATTRIBUTE_LENGTH:
            yield f"spec.attributes[{key[:40]!r}] is longer than {_MAX_ATTRIBUTE_LENGTH} characters; shorten it"
        elif key in _VALUES and value not in _VALUES[key]:
            yield f"spec.attributes[{key!r}] is {value[:40]!r}; write {' or '.join(_VALUES[key])}"


def _data_set(system: str, kind: str, name: str, attributes: dict[str, str]) -> DataSet:
    identifying = (item for item in attributes.items() if not item[0].startswith(OUR_PREFIX))
    return DataSet(system, kind, name, tuple(sorted(identifying)))
