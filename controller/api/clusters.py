"""Wire types of Karmada's Cluster."""

from datetime import datetime

import msgspec

from controller.api.meta import Quantities, WatchedObject, decode_watched


class Taint(msgspec.Struct, rename="camel", frozen=True):
    """A taint of a cluster."""

    key: str = ""
    value: str = ""
    effect: str = ""


class ResourceRange(msgspec.Struct, rename="camel", frozen=True):
    """Range of free resources that the nodes of a grade have, from *min* to below *max*."""

    name: str = ""
    min: str | int | float = 0
    max: str | int | float = 0


class ResourceModel(msgspec.Struct, rename="camel", frozen=True):
    """One grade of nodes."""

    grade: int = 0
    ranges: list[ResourceRange] = msgspec.field(default_factory=list)


class ClusterSpec(msgspec.Struct, rename="camel", frozen=True):
    """Spec of a cluster."""

    provider: str = ""
    region: str = ""
    zone: str = ""
    zones: list[str] = msgspec.field(default_factory=list)
    taints: list[Taint] = msgspec.field(default_factory=list)
    resource_models: list[ResourceModel] = msgspec.field(default_factory=list)


class EnabledResource(msgspec.Struct, rename="camel", frozen=True):
    """One kind of a group and version."""

    kind: str = ""


class ApiEnablement(msgspec.Struct, rename="camel", frozen=True):
    """Kinds of one group and version that a cluster serves."""

    group_version: str = ""
    resources: list[EnabledResource] = msgspec.field(default_factory=list)


class ClusterCondition(msgspec.Struct, rename="camel", frozen=True):
    """A condition of a cluster."""

    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class GradeCount(msgspec.Struct, rename="camel", frozen=True):
    """Number of nodes in one grade."""

    grade: int = 0
    count: int = 0


class NodeSummary(msgspec.Struct, rename="camel", frozen=True):
    """Number of nodes of a cluster."""

    total_num: int = 0


class ResourceSummary(msgspec.Struct, rename="camel", frozen=True):
    """Allocatable and used resources of a cluster; resources with zero are absent."""

    allocatable: Quantities = msgspec.field(default_factory=dict)
    allocating: Quantities = msgspec.field(default_factory=dict)
    allocated: Quantities = msgspec.field(default_factory=dict)
    allocatable_modelings: list[GradeCount] = msgspec.field(default_factory=list)


class ClusterStatus(msgspec.Struct, rename="camel", frozen=True):
    """Status of a cluster."""

    api_enablements: list[ApiEnablement] = msgspec.field(default_factory=list)
    conditions: list[ClusterCondition] = msgspec.field(default_factory=list)
    node_summary: NodeSummary | None = None
    resource_summary: ResourceSummary | None = None


class Cluster(WatchedObject, frozen=True):
    """A member cluster."""

    spec: ClusterSpec = msgspec.field(default_factory=ClusterSpec)
    status: ClusterStatus = msgspec.field(default_factory=ClusterStatus)


_CLUSTER = msgspec.json.Decoder(Cluster)


def decode_cluster(raw: bytes | memoryview) -> Cluster:
    """Decode a Cluster."""
    return decode_watched(_CLUSTER, raw)
