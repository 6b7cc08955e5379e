"""Well-known names: API resources with their paths, labels and annotations."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resource:
    """An API resource, with its path."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``group/version``, or only the version for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """The path that lists it in all namespaces."""
        return f"/{'apis' if self.group else 'api'}/{self.api_version}/{self.plural}"

    def path_in(self, namespace: str) -> str:
        """Return the path that lists it in *namespace*, empty for a cluster-scoped kind."""
        if not namespace:
            return self.path
        return f"/{'apis' if self.group else 'api'}/{self.api_version}/namespaces/{namespace}/{self.plural}"

    def item_path(self, namespace: str, name: str) -> str:
        """Return the path of one object; *namespace* is empty for a cluster-scoped object."""
        return f"{self.path_in(namespace)}/{name}"


RESOURCE_BINDINGS = Resource("work.karmada.io", "v1alpha2", "resourcebindings", "ResourceBinding")
CLUSTER_RESOURCE_BINDINGS = Resource(
    "work.karmada.io", "v1alpha2", "clusterresourcebindings", "ClusterResourceBinding", namespaced=False
)
CLUSTERS = Resource("cluster.karmada.io", "v1alpha1", "clusters", "Cluster", namespaced=False)
JOBS = Resource("batch.volcano.sh", "v1alpha1", "jobs", "Job")
QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
HYPERJOBS = Resource("training.volcano.sh", "v1alpha1", "hyperjobs", "HyperJob")
BATCH_HYPERJOBS = Resource("batch.volcano.sh", "v1alpha1", "hyperjobs", "HyperJob")
"""The API group of HyperJobs in Volcano's documentation."""
MUTATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
COMMANDS = Resource("bus.volcano.sh", "v1alpha1", "commands", "Command")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
DATA_SOURCE_CLAIMS = Resource("datadependency.volcano.sh", "v1alpha1", "datasourceclaims", "DataSourceClaim")
DATA_SOURCES = Resource("datadependency.volcano.sh", "v1alpha1", "datasources", "DataSource", namespaced=False)
PROPAGATION_POLICIES = Resource("policy.karmada.io", "v1alpha1", "propagationpolicies", "PropagationPolicy")


def binding_name(name: str, kind: str) -> str:
    """Return the name that Karmada gives the binding of an object; equal kinds of other groups share it."""
    return f"{name}-{kind}".replace(":", ".").lower()


#: ConfigMap with the active configuration, in the namespace of the lease.
PUBLISHED_CONFIGURATION = "volcano-global-configuration"
#: Admission record, on the binding.
ADMISSION_ANNOTATION = "volcano-global.io/admission"
#: Run time and submission time of a job, for the simulator only.
RUNTIME_ANNOTATION = "volcano-global.io/runtime"
SUBMIT_ANNOTATION = "volcano-global.io/submit"

#: ConfigMap with the learned run times, in the namespace of the Lease (by default this one), and its key.
RUN_TIMES_NAME = "volcano-global-run-times"
RUN_TIMES_NAMESPACE = "karmada-system"
RUN_TIMES_KEY = "run-times.json"

#: Annotations or labels that name the queue of kinds without a queue field; the first one set counts.
QUEUE_NAME_KEYS = ("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name")

#: Labels that Karmada sets when a policy matches; its scheduler ignores a binding with neither.
POLICY_LABELS = (
    "propagationpolicy.karmada.io/permanent-id",
    "clusterpropagationpolicy.karmada.io/permanent-id",
)
#: Annotations that Karmada sets with these labels: name and namespace of the PropagationPolicy, or the cluster policy.
POLICY_ANNOTATIONS = (
    "propagationpolicy.karmada.io/name",
    "propagationpolicy.karmada.io/namespace",
    "clusterpropagationpolicy.karmada.io/name",
)

HYPERJOB_NAME_LABEL = "volcano.sh/hyperjob-name"
REPLICATED_JOB_NAME_LABEL = "volcano.sh/replicatedjob-name"
HYPERJOB_GROUPS = frozenset({"training.volcano.sh", "batch.volcano.sh"})
HYPERJOB_KIND = "HyperJob"

#: On a HyperJob's Job, JSON `{"uid", "split"}`: its HyperJob, and the split for which it was created. Everything else
#: about its gang (G1) is in the HyperJob's spec and status; a Job that they do not list is not a part.
GROUP_ANNOTATION = "volcano-global.io/group"
#: On a HyperJob's Job, JSON list: preferred clusters, in order (C3).
PREFERRED_CLUSTERS_ANNOTATION = "volcano-global.io/preferred-clusters"
#: On the objects of a part, JSON `{"index", "attempt", "template", "digest"}`: the applied revision, to detect changes.
PART_ANNOTATION = "volcano-global.io/part"

#: Prefix of annotations and attributes of ours.
OUR_PREFIX = "volcano-global.io/"
#: Attributes of a DataSourceClaim: whether its data restrict the clusters of the workload, or are only preferred; and
#: whether the admitted workload is evicted when its data move.
DATA_PLACEMENT_ATTRIBUTE = "volcano-global.io/placement"
DATA_MOVE_ATTRIBUTE = "volcano-global.io/on-move"
#: On a DataSource: when the plugin located its data last.
LOCATED_AT_ANNOTATION = "volcano-global.io/located-at"
#: On a binding, as upstream's controller writes them: that clusters without the data are excluded, and which ones.
DATA_PLACEMENT_ANNOTATION = "datadependency.volcano.sh/placement-injected"
DATA_EXCLUDED_ANNOTATION = "datadependency.volcano.sh/excluded-clusters"
#: Finalizers of upstream's controller on claims and sources; none is added here.
DATA_FINALIZERS = frozenset({"datadependency.volcano.sh/finalizer", "datadependency.volcano.sh/datasource-finalizer"})
#: ConfigMap with the settings of the plugins that locate data, and its namespace by default.
DATA_PLUGINS_NAME = "volcano-global-datasource-plugins"
DATA_PLUGINS_NAMESPACE = "volcano-global"
