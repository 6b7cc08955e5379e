"""Reads charges, jobs running in member clusters, metrics and memory use of the processes."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec
import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from controller.api.keys import ADMISSION_ANNOTATION, JOBS, RESOURCE_BINDINGS
from controller.engine.state.resources import base_units, scale
from controller.kube.client import Api
from localup.karmada.objects import TEMPLATE_GENERATION
from localup.karmada.workloads import parse_workload
from tests.hostile.ground import CLAIM, QUEUES
from tests.rig.requests import amount

WORKS = "/apis/work.karmada.io/v1alpha1/works"
VALUES = Path(__file__).parents[2] / "charts" / "volcano-global" / "values.yaml"
_PAGE = 50
"""Objects of a page; some are large."""
_FINAL = {"Completed", "Failed", "Terminated", "Aborted"}
Amounts = Mapping[str, Fraction]
"""Whole CPUs, GPUs and so on; none of zero."""
Key = tuple[str, str, str]
"""Namespace, job and cluster."""


Usage = Mapping[tuple[str, str], Fraction]
"""By queue and resource."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What the record of an admitted, unfinished binding charges for one cluster."""

    queue: str
    amounts: Amounts
    may_stand: bool = False
    """A documented rule allows it not to run."""


@dataclass(frozen=True, slots=True)
class Run:
    """Requests of a job that runs in one member cluster."""

    amounts: Amounts
    is_edited: bool
    """Its template has changed since it was created."""


def samples(url: str, name: str) -> list[Sample]:
    """Return the samples of a metric."""
    with urlopen(url, timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return [sample for family in families for sample in family.samples if sample.name == name]


def usage(url: str) -> Usage:
    """Return the usage metric by queue and resource; it has no pods."""
    gauges = samples(url, "volcano_global_queue_resource_usage")
    return {(gauge.labels["queue"], gauge.labels["resource"]): Fraction(str(gauge.value)) for gauge in gauges}


def memory_limit(part: str) -> int:
    """Return the memory limit of ``controller`` or ``webhook`` in the chart's values."""
    return int(amount(yaml.safe_load(VALUES.read_text())[part]["resources"]["limits"]["memory"]))


async def charges(api: Api) -> dict[Key, Charge]:
    """Return the charges in the records of admitted, unfinished bindings."""
    charged: dict[Key, Charge] = {}
    async for item in api.list_items(RESOURCE_BINDINGS.path, limit=_PAGE):
        binding = msgspec.json.decode(item)
        record = binding["metadata"].get("annotations", {}).get(ADMISSION_ANNOTATION)
        if not record or binding["spec"].get("suspension", {}).get("scheduling") or _is_over(binding):
            continue
        read = msgspec.json.decode(record)
        if "charge" not in read or read.get("uid") != binding["metadata"]["uid"]:
            continue
        # A job that is duplicated to several clusters is charged for each of them (D5).
        share = {name: Fraction(amount(value)) / len(read["clusters"]) for name, value in read["charge"].items()}
        for cluster in binding["spec"].get("clusters") or ():
            key = (binding["metadata"]["namespace"], binding["spec"]["resource"]["name"], cluster["name"])
            charged[key] = Charge(read["queue"], _positive(share), _may_stand(binding, cluster["name"]))
    return charged


def _is_over(binding: dict[str, Any]) -> bool:
    items = binding.get("status", {}).get("aggregatedStatus") or ()
    phases = [((item.get("status") or {}).get("state") or {}).get("phase") for item in items]
    return bool(phases) and all(phase in _FINAL for phase in phases)


def _may_stand(binding: dict[str, Any], cluster: str) -> bool:
    """Return whether a charged workload may not run: it is being deleted, or its dispatching is suspended."""
    suspension = binding["spec"].get("suspension") or {}
    on_clusters = (suspension.get("dispatchingOnClusters") or {}).get("clusterNames") or ()
    return "deletionTimestamp" in binding["metadata"] or bool(suspension.get("dispatching")) or cluster in on_clusters


async def running(api: Api) -> dict[Key, Run]:
    """Return the Volcano Jobs running in member clusters, from the manifests and status of Works."""
    runs: dict[Key, Run] = {}
    async for item in api.list_items(WORKS, limit=_PAGE):
        work = msgspec.json.decode(item)
        cluster = work["metadata"]["namespace"].removeprefix("karmada-es-")
        if cluster == work["metadata"]["namespace"]:
            continue
        for manifest, phase in _manifests(work):
            if manifest.get("kind") == "Job" and manifest.get("apiVersion") == JOBS.api_version and phase == "Running":
                key = (manifest["metadata"]["namespace"], manifest["metadata"]["name"], cluster)
                runs[key] = Run(_requests(manifest), manifest["metadata"]["annotations"][TEMPLATE_GENERATION] != "1")
    return runs


def _manifests(work: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    statuses = work.get("status", {}).get("manifestStatuses") or ()
    phases = [((status.get("status") or {}).get("state") or {}).get("phase", "") for status in statuses]
    for number, manifest in enumerate(work["spec"]["workload"].get("manifests") or ()):
        yield manifest, phases[number] if number < len(phases) else ""


def _requests(manifest: dict[str, Any]) -> Amounts:
    """Return the requests of all pods of a job, including pods and devices of mapped resource claims."""
    summed: Counter[str] = Counter()
    for task, read in zip(manifest["spec"]["tasks"], parse_workload(manifest, run_time=1).tasks, strict=True):
        summed.update({name: Fraction(value, base_units(name)) for name, value in scale(read.pod, read.count).items()})
        claims = task["template"]["spec"].get("resourceClaims") or ()
        summed["nvidia.com/gpu"] += read.count * sum(
            claim.get("resourceClaimTemplateName") == CLAIM for claim in claims
        )
        summed["pods"] += read.count if "pods" not in read.pod else 0
    return _positive(summed)


def _positive(amounts: Mapping[str, Fraction]) -> Amounts:
    return {name: value for name, value in amounts.items() if value}


def differences(charged: Mapping[Key, Charge], run: Mapping[Key, Run]) -> dict[Key, str]:
    """Return differences between charges and running jobs that no documented rule explains."""
    unexplained = {}
    for key in charged.keys() | run.keys():
        charge, there = charged.get(key), run.get(key)
        if charge is None or there is None:
            if charge is None or not charge.may_stand:
                unexplained[key] = f"charged: {charge}, running: {there}"
        elif charge.amounts != there.amounts and not (there.is_edited and _is_within(there.amounts, charge.amounts)):
            unexplained[key] = f"charged: {charge}, running: {there}"
    return unexplained


def _is_within(smaller: Amounts, larger: Amounts) -> bool:
    """Return whether a shrunk job requests at most what its record still charges."""
    return all(value <= larger.get(name, 0) for name, value in smaller.items())


def miscounts(charged: Mapping[Key, Charge], before: Usage, after: Usage) -> dict[Key, str]:
    """Return queues whose usage, read *before* and *after* the records, differs from the sum of the records."""
    sums: Counter[tuple[str, str]] = Counter()
    for charge in charged.values():
        sums.update({(charge.queue, name): value for name, value in charge.amounts.items()})
    miscounted = {}
    for queue, resource in (key for key in before.keys() | after.keys() if key[0] in QUEUES):
        ends = sorted(reading.get((queue, resource), Fraction(0)) for reading in (before, after))
        if not ends[0] <= sums[queue, resource] <= ends[1]:
            miscounted["", queue, resource] = f"records: {sums[queue, resource]}, usage: {ends}"
    return miscounted
