"""Wire types of Karmada's ResourceBinding and ClusterResourceBinding, with the placement of a policy."""

import msgspec

from controller.api.meta import Quantities, WatchedObject, decode_watched


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


class ObjectReference(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Reference to the template of a binding."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class ReplicaRequirements(msgspec.Struct, rename="camel", frozen=True):
    """Requests of one replica."""

    resource_request: Quantities = msgspec.field(default_factory=dict)


class Component(msgspec.Struct, rename="camel", frozen=True):
    """One of several pod templates of a workload."""

    name: str = ""
    replicas: int = 0
    replica_requirements: ReplicaRequirements | None = None


class TargetCluster(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One cluster of ``spec.clusters``."""

    name: str = ""
    replicas: int | None = None


class SuspendedClusters(msgspec.Struct, rename="camel", frozen=True):
    """Clusters to which dispatching is suspended."""

    cluster_names: tuple[str, ...] | None = None


class Suspension(msgspec.Struct, rename="camel", frozen=True):
    """Whether scheduling and dispatching of a binding are suspended."""

    scheduling: bool | None = False
    dispatching: bool | None = False
    dispatching_on_clusters: SuspendedClusters | None = None


class GracefulEvictionTask(msgspec.Struct, rename="camel", frozen=True):
    """A cluster from which Karmada evicts the workload."""

    from_cluster: str = ""
    replicas: int | None = None


class ApplicationFailover(msgspec.Struct, rename="camel", frozen=True):
    """Application failover is enabled; its settings are not read."""


class Failover(msgspec.Struct, rename="camel", frozen=True):
    """Failover settings of a binding."""

    application: ApplicationFailover | None = None


class BindingSnapshot(msgspec.Struct, rename="camel", frozen=True):
    """A binding that depends on this one."""

    name: str = ""


class BindingSpec(msgspec.Struct, rename="camel", frozen=True):
    """Spec of a binding."""

    resource: ObjectReference = msgspec.field(default_factory=ObjectReference)
    replicas: int = 0
    replica_requirements: ReplicaRequirements | None = None
    components: list[Component] = msgspec.field(default_factory=list)
    clusters: list[TargetCluster] | None = None
    placement: Placement | None = None
    graceful_eviction_tasks: list[GracefulEvictionTask] | None = None
    required_by: list[BindingSnapshot] = msgspec.field(default_factory=list)
    suspension: Suspension | None = None
    preserve_resources_on_deletion: bool = False
    propagate_deps: bool = False
    failover: Failover | None = None


class AggregatedStatusItem(msgspec.Struct, rename="camel", frozen=True):
    """Status of the template in one member cluster; the form of *status* depends on the kind.

    Karmada leaves ``applied`` out where it is false.
    """

    cluster_name: str = ""
    status: msgspec.Raw = msgspec.Raw(b"null")
    applied: bool = False
    applied_message: str = ""
    """Why the Work cannot be applied; then there is no status, whatever the cluster runs. Empty for a new Work."""

    @property
    def is_refused(self) -> bool:
        """Whether the Work cannot be applied; a new Work, which has no message yet, has not been tried."""
        return not self.applied and bool(self.applied_message) and bytes(self.status) == b"null"


class BindingStatus(msgspec.Struct, rename="camel", frozen=True):
    """Status of a binding."""

    scheduler_observing_affinity_name: str = ""
    aggregated_status: list[AggregatedStatusItem] = msgspec.field(default_factory=list)


class ResourceBinding(WatchedObject, rename="camel", frozen=True):
    """A binding; the cluster-scoped kind has the same form and no namespace."""

    spec: BindingSpec = msgspec.field(default_factory=BindingSpec)
    status: BindingStatus = msgspec.field(default_factory=BindingStatus)


_BINDING = msgspec.json.Decoder(ResourceBinding)


def decode_binding(raw: bytes | memoryview) -> ResourceBinding:
    """Decode a ResourceBinding or ClusterResourceBinding."""
    return decode_watched(_BINDING, raw)
