"""Reads the status of a job from its ResourceBinding.

Only the binding is read, because one watch delivers its versions in order. The template's status is updated later.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

RECORD: Final = "volcano-global.io/admission"
BINDING_NAME: Final = "resourcebinding.karmada.io/name"
BINDING_NAMESPACE: Final = "resourcebinding.karmada.io/namespace"

_FINAL_PHASES: Final = frozenset({"Completed", "Failed", "Terminated"})


@dataclass(frozen=True, slots=True)
class BindingStatus:
    """State of a binding at one resource version.

    Attributes:
        version: The resourceVersion.
        job: The job of the binding, as `namespace/name`.
        binding: The binding's `namespace/name`.
        suspended: Whether scheduling is suspended.
        has_record: Whether it has an admission record written for its uid.
        plan: Identifier of the plan that admitted it together with other workloads; empty if admitted alone.
        clusters: The assigned clusters.
        phase: The job's phase reported by its cluster; empty before the first report.
        pods: The number of running pods, or of pods that ran if the job has finished.
    """

    version: int
    job: str
    binding: str
    suspended: bool
    has_record: bool
    clusters: tuple[str, ...]
    phase: str
    pods: int
    plan: str = ""

    @property
    def is_admitted(self) -> bool:
        """Return whether it is resumed and assigned to clusters."""
        return not self.suspended and bool(self.clusters)

    @property
    def is_over(self) -> bool:
        """Return whether the job has finished."""
        return self.phase in _FINAL_PHASES

    @property
    def has_started(self) -> bool:
        """Return whether pods run or have run."""
        return self.phase == "Running" or self.is_over


def parse_binding(binding: Any) -> BindingStatus:
    """Return the status of a ResourceBinding."""
    metadata, spec = binding["metadata"], binding["spec"]
    status, record = _status(binding), _record(metadata)
    return BindingStatus(
        version=int(metadata["resourceVersion"]),
        job=f"{metadata['namespace']}/{spec['resource']['name']}",
        binding=f"{metadata['namespace']}/{metadata['name']}",
        suspended=bool(spec.get("suspension", {}).get("scheduling")),
        has_record=bool(record.get("charge")),
        plan=record.get("planID", ""),
        clusters=tuple(cluster["name"] for cluster in spec.get("clusters") or ()),
        phase=status.get("state", {}).get("phase", ""),
        pods=sum(status.get(part, 0) for part in ("running", "succeeded", "failed")),
    )


def binding_of_work(work: Any) -> str | None:
    """Return the `namespace/name` of the binding of a Work; ``None`` for Works that Karmada creates on its own."""
    annotations = work["metadata"].get("annotations", {})
    if BINDING_NAME not in annotations:
        return None
    return f"{annotations.get(BINDING_NAMESPACE)}/{annotations[BINDING_NAME]}"


def _status(binding: Any) -> Any:
    """Return the job status reported by the cluster; each job of the demo has at most one."""
    items = binding.get("status", {}).get("aggregatedStatus") or [{}]
    return items[0].get("status") or {}


def _record(metadata: Any) -> Any:
    """Return the admission record written for this binding's uid, empty if there is none."""
    record = json.loads(metadata.get("annotations", {}).get(RECORD, "{}"))
    return record if record.get("uid") == metadata["uid"] else {}
