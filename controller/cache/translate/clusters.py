"""Karmada's Clusters as the engine's."""

from controller.api import clusters as wire
from controller.cache.facts import ClusterFacts
from controller.cache.translate.amounts import AmountError, amounts, sentence, version
from controller.engine.clusters import ApiKind, Cluster, ClusterName, Model, Taint
from controller.engine.resources import EMPTY, Resources, add


def cluster_facts(cluster: wire.Cluster) -> ClusterFacts:
    """Return what is kept of *cluster*.

    One whose summary cannot be read has none: it takes no new workloads.
    """
    try:
        allocatable, used, models = _summary(cluster)
        trouble = ""
    except AmountError as error:
        allocatable, used, models, trouble = None, EMPTY, (), str(error)
    if cluster.flaws:
        allocatable = None
    spec = cluster.spec
    value = Cluster(
        name=ClusterName(cluster.metadata.name),
        labels=cluster.metadata.labels,
        provider=spec.provider,
        region=spec.region,
        zones=tuple(spec.zones) or ((spec.zone,) if spec.zone else ()),
        taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in spec.taints),
        enablements=_enablements(cluster),
        ready=any(each.type == "Ready" and each.status == "True" for each in cluster.status.conditions),
        deleting=cluster.metadata.deletion_timestamp is not None,
        allocatable=allocatable,
        used=used,
        models=models,
    )
    flaw = sentence(cluster.flaws, trouble)
    return ClusterFacts(cluster.metadata.uid, version(cluster.metadata.resource_version), value, flaw)


def _enablements(cluster: wire.Cluster) -> frozenset[ApiKind]:
    return frozenset(
        ApiKind(enablement.group_version, resource.kind)
        for enablement in cluster.status.api_enablements
        for resource in enablement.resources
    )


def _summary(cluster: wire.Cluster) -> tuple[Resources | None, Resources, tuple[Model, ...]]:
    """Return what the cluster has, what is taken, and its nodes by grade."""
    summary = cluster.status.resource_summary
    if summary is None:
        return None, EMPTY, ()
    where = "status.resourceSummary"
    used = add(amounts(summary.allocated, f"{where}.allocated"), amounts(summary.allocating, f"{where}.allocating"))
    return amounts(summary.allocatable, f"{where}.allocatable"), used, _models(cluster, summary)


def _models(cluster: wire.Cluster, summary: wire.ResourceSummary) -> tuple[Model, ...]:
    grades = {
        model.grade: amounts({each.name: each.min for each in model.ranges}, "spec.resourceModels")
        for model in cluster.spec.resource_models
    }
    return tuple(
        Model(count.count, grades[count.grade]) for count in summary.allocatable_modelings if count.grade in grades
    )
