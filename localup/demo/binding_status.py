"""What one look at a binding tells of its job. Pure.

Read from the binding alone, whose versions follow one another in one watch: the
template's status comes later and by another way.
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
    """A binding as it was at one version.

    Attributes:
        version: The server's resourceVersion.
        job: The job it stands for, as `namespace/name`.
        binding: Its own `namespace/name`.
        paused: Whether Karmada is kept from placing it.
        recorded: Whether it carries the record of an admission that was written for it.
        plan: Which admissions were decided together with it; empty where it was admitted alone.
        clusters: Where it is placed.
        phase: What its cluster says of the job, empty before it says anything.
        pods: How many of its pods run, or have run when it is over.
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
        """Say whether it may run, or has run."""
        return not self.suspended and bool(self.clusters)

    @property
    def is_over(self) -> bool:
        """Say whether it has run."""
        return self.phase in _FINAL_PHASES

    @property
    def has_started(self) -> bool:
        """Say whether pods of it run, or have run."""
        return self.phase == "Running" or self.is_over


def parse_binding(binding: Any) -> BindingStatus:
    """Read a binding."""
    metadata, spec = binding["metadata"], binding["spec"]
    status, record = _status(binding), _record(metadata)
    return BindingStatus(
        version=int(metadata["resourceVersion"]),
        job=f"{metadata['namespace']}/{spec['resource']['name']}",
        binding=f"{metadata['namespace']}/{metadata['name']}",
        suspended=bool(spec.get("suspension", {}).get("scheduling")),
        has_record=bool(record.get("charge")),
        plan=record.get("plan", ""),
        clusters=tuple(cluster["name"] for cluster in spec.get("clusters") or ()),
        phase=status.get("state", {}).get("phase", ""),
        pods=sum(status.get(part, 0) for part in ("running", "succeeded", "failed")),
    )


def binding_of_work(work: Any) -> str | None:
    """Return the binding, as `namespace/name`, that a Work was made for; ``None`` for what Karmada sends by itself."""
    annotations = work["metadata"].get("annotations", {})
    if BINDING_NAME not in annotations:
        return None
    return f"{annotations.get(BINDING_NAMESPACE)}/{annotations[BINDING_NAME]}"


def _status(binding: Any) -> Any:
    """Return what the cluster says of the job; every job of the demo has one cluster at most."""
    items = binding.get("status", {}).get("aggregatedStatus") or [{}]
    return items[0].get("status") or {}


def _record(metadata: Any) -> Any:
    """Return our record of what was decided about this very binding, empty where there is none."""
    record = json.loads(metadata.get("annotations", {}).get(RECORD, "{}"))
    return record if record.get("uid") == metadata["uid"] else {}
