"""Wire types of a policy's placement, as Karmada copies it into a binding."""

import msgspec


class Expression(msgspec.Struct, rename="camel", frozen=True):
    """One requirement of a selector."""

    key: str = ""
    operator: str = ""
    values: list[str] = msgspec.field(default_factory=list)


class LabelSelector(msgspec.Struct, rename="camel", frozen=True):
    """Selects clusters by labels."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: list[Expression] = msgspec.field(default_factory=list)


class FieldSelector(msgspec.Struct, rename="camel", frozen=True):
    """Selects clusters by provider, region and zone."""

    match_expressions: list[Expression] = msgspec.field(default_factory=list)


class ClusterAffinity(msgspec.Struct, rename="camel", frozen=True):
    """Selects clusters; one of several ordered affinities also has a name and overflow affinities."""

    affinity_name: str = ""
    cluster_names: list[str] = msgspec.field(default_factory=list)
    exclude: list[str] = msgspec.field(default_factory=list)
    label_selector: LabelSelector | None = None
    field_selector: FieldSelector | None = None
    overflow_affinities: list["ClusterAffinity"] = msgspec.field(default_factory=list)


class ClusterToleration(msgspec.Struct, rename="camel", frozen=True):
    """A toleration of cluster taints."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SpreadConstraint(msgspec.Struct, rename="camel", frozen=True):
    """Minimum and maximum number of cluster groups of a workload."""

    spread_by_field: str = ""
    spread_by_label: str = ""
    min_groups: int = 0
    max_groups: int = 0


class StaticClusterWeight(msgspec.Struct, rename="camel", frozen=True):
    """The weight of the selected clusters."""

    target_cluster: ClusterAffinity = msgspec.field(default_factory=ClusterAffinity)
    weight: int = 0


class WeightPreference(msgspec.Struct, rename="camel", frozen=True):
    """How replicas are weighted."""

    static_weight_list: list[StaticClusterWeight] = msgspec.field(default_factory=list)
    dynamic_weight: str = ""


class ReplicaScheduling(msgspec.Struct, rename="camel", frozen=True):
    """Whether and how replicas are divided."""

    replica_scheduling_type: str = ""
    replica_division_preference: str = ""
    weight_preference: WeightPreference | None = None


class Placement(msgspec.Struct, rename="camel", frozen=True):
    """Where a policy places its objects."""

    cluster_affinity: ClusterAffinity | None = None
    cluster_affinities: list[ClusterAffinity] = msgspec.field(default_factory=list)
    cluster_tolerations: list[ClusterToleration] = msgspec.field(default_factory=list)
    spread_constraints: list[SpreadConstraint] = msgspec.field(default_factory=list)
    replica_scheduling: ReplicaScheduling | None = None
