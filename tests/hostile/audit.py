"""What the controller charges, what the member clusters run, and what the processes show of themselves."""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec
import yaml
from prometheus_client.parser import text_string_to_metric_families

from controller.api.keys import ADMISSION_ANNOTATION, JOBS, RESOURCE_BINDINGS
from controller.engine.resources import base_units, scale, total
from controller.kube import Api
from localup.karmada.loads import load_of
from tests.rig.sizes import amount

WORKS = "/apis/work.karmada.io/v1alpha1/works"
VALUES = Path(__file__).parents[2] / "charts" / "volcano-global" / "values.yaml"
_FINAL = {"Completed", "Failed", "Terminated", "Aborted"}
Charges = dict[tuple[str, str, str], Counter[str]]
"""By namespace, job and cluster: whole CPUs, GPUs and so on."""


def metric(url: str, name: str) -> float:
    """Return the sum of all samples of that name."""
    with urlopen(url, timeout=30) as answer:
        text = answer.read().decode()
    families = text_string_to_metric_families(text)
    return sum(each.value for family in families for each in family.samples if each.name == name)


def peak_memory(pid: int) -> int:
    """Return the most bytes that a process has had resident."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def memory_limit(part: str) -> int:
    """Return what the chart's values limit the memory of ``controller`` or ``webhook`` to."""
    return int(amount(yaml.safe_load(VALUES.read_text())[part]["resources"]["limits"]["memory"]))


async def listed(api: Api, path: str) -> list[dict[str, Any]]:
    """Return all objects of a list, page by page: some of them are large."""
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        page = msgspec.json.decode(await api.get(f"{path}?limit=50" + (f"&continue={token}" if token else "")))
        found += page["items"]
        token = page["metadata"].get("continue", "")
        if not token:
            return found


async def charges(api: Api) -> Charges:
    """Return what the records of the admitted bindings charge that have not finished."""
    found: Charges = {}
    for binding in await listed(api, RESOURCE_BINDINGS.path):
        record = binding["metadata"].get("annotations", {}).get(ADMISSION_ANNOTATION)
        if not record or binding["spec"].get("suspension", {}).get("scheduling") or _is_over(binding):
            continue
        read = msgspec.json.decode(record)
        if "charge" not in read or read.get("uid") != binding["metadata"]["uid"]:
            continue
        for cluster in binding["spec"].get("clusters") or ():
            amounts = {name: amount(value) for name, value in read["charge"].items()}
            key = (binding["metadata"]["namespace"], binding["spec"]["resource"]["name"], cluster["name"])
            found[key] = Counter(amounts)
    return found


def _is_over(binding: dict[str, Any]) -> bool:
    items = binding.get("status", {}).get("aggregatedStatus") or ()
    phases = [((each.get("status") or {}).get("state") or {}).get("phase") for each in items]
    return bool(phases) and all(phase in _FINAL for phase in phases)


async def running(api: Api) -> Charges:
    """Return what the member clusters run of Volcano Jobs, by the manifests that they were given and its status."""
    found: Charges = {}
    for work in await listed(api, WORKS):
        cluster = work["metadata"]["namespace"].removeprefix("karmada-es-")
        if cluster == work["metadata"]["namespace"]:
            continue
        for manifest, phase in _manifests(work):
            if manifest.get("kind") == "Job" and manifest.get("apiVersion") == JOBS.api_version and phase == "Running":
                key = (manifest["metadata"]["namespace"], manifest["metadata"]["name"], cluster)
                found[key] = _requests(manifest)
    return found


def _manifests(work: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    statuses = work.get("status", {}).get("manifestStatuses") or ()
    phases = [((each.get("status") or {}).get("state") or {}).get("phase", "") for each in statuses]
    for number, manifest in enumerate(work["spec"]["workload"].get("manifests") or ()):
        yield manifest, phases[number] if number < len(phases) else ""


def _requests(manifest: dict[str, Any]) -> Counter[str]:
    load = load_of(manifest, run_time=1)
    summed = total(scale(task.pod, task.count) for task in load.tasks)
    return Counter({name: Fraction(value, base_units(name)) for name, value in summed.items()})
