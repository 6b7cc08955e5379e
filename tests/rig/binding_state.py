"""A binding as the judge sees it: a few fields of one stored state, read without the controller's eyes."""

import json
from dataclasses import dataclass
from typing import Any

from tests.rig.history import Key

RECORD = "volcano-global.io/admission"
GATED = ("batch.volcano.sh", "Job")
_OVER = {"Completed", "Failed", "Terminated"}
_CLAIMS = ("propagationpolicy.karmada.io/permanent-id", "clusterpropagationpolicy.karmada.io/permanent-id")


@dataclass(frozen=True, slots=True)
class BindingState:
    """One state of one binding."""

    uid: str
    job: Key
    gated: bool
    suspended: bool
    has_policy: bool
    is_terminating: bool
    clusters: tuple[str, ...]
    is_finished: bool
    record: dict[str, Any]
    """Our record, where it speaks of this very binding; else nothing."""

    @property
    def admitted(self) -> bool:
        """Say whether it was let go by a record of ours."""
        return not self.suspended and bool(self.record.get("charge"))

    @property
    def holds(self) -> bool:
        """Say whether it takes room: it runs, or may start any moment."""
        return not self.is_finished and (bool(self.clusters) or (self.admitted and self.has_policy))


def parse_binding(binding: dict[str, Any]) -> BindingState:
    """Read *binding*."""
    meta, spec = binding["metadata"], binding["spec"]
    group = spec["resource"]["apiVersion"].rpartition("/")[0]
    clusters = tuple(cluster["name"] for cluster in spec.get("clusters") or ())
    told = {item["clusterName"]: _phase(item) for item in binding.get("status", {}).get("aggregatedStatus") or ()}
    return BindingState(
        uid=meta["uid"],
        job=(spec["resource"].get("namespace", ""), spec["resource"]["name"]),
        gated=(group, spec["resource"]["kind"]) == GATED,
        suspended=(spec.get("suspension") or {}).get("scheduling") is True,
        has_policy=any(claim in meta.get("labels", {}) for claim in _CLAIMS),
        is_terminating="deletionTimestamp" in meta,
        clusters=clusters,
        is_finished=bool(clusters) and all(told.get(name) in _OVER for name in clusters),
        record=_record(meta),
    )


def _phase(item: dict[str, Any]) -> str:
    return str(((item.get("status") or {}).get("state") or {}).get("phase", ""))


def _record(meta: dict[str, Any]) -> dict[str, Any]:
    try:
        record = json.loads(meta.get("annotations", {}).get(RECORD, "{}"))
    except ValueError:
        return {}
    return record if isinstance(record, dict) and record.get("uid") == meta["uid"] else {}
