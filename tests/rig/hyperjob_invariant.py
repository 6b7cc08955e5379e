"""I5: verifies that a HyperJob's Jobs match its split, one per part, and that none is created after its end.

It reads the store's history; a Job belongs to its controlling owner.
"""

import json
from collections.abc import Iterator
from typing import Any

from controller.api.keys import PART_ANNOTATION
from tests.rig.history import Change, Key

_OVER = {"Completed", "Failed"}


class HyperJobChecker:
    """HyperJobs and their Jobs at the current revision."""

    def __init__(self) -> None:
        self.hyperjobs: dict[str, dict[str, Any]] = {}
        """HyperJobs by uid."""
        self.jobs: dict[Key, dict[str, Any]] = {}

    def apply(self, change: Change) -> Iterator[str]:
        """Apply *change* and yield its violations."""
        if change.kind == "hyperjobs":
            gone, there = change.before, change.after
            if gone is not None:
                self.hyperjobs.pop(gone["metadata"]["uid"], None)
            if there is not None:
                self.hyperjobs[there["metadata"]["uid"]] = there
        elif change.kind == "jobs":
            yield from self._enter_job(change)

    def _enter_job(self, change: Change) -> Iterator[str]:
        job = change.after
        self.jobs.pop(change.key, None)
        if not job:
            return  # deleted, or a batch Job, which has another encoding
        self.jobs[change.key] = job
        owner = hyperjob_of(job)
        hyperjob = self.hyperjobs.get(owner)
        if hyperjob is None or change.before is not None:
            return
        path = "/".join(change.key)
        if hyperjob.get("status", {}).get("phase") in _OVER:
            yield f"{change.revision}: Job {path} was made although its HyperJob is {hyperjob['status']['phase']}"
        duplicates = [
            other for key, other in self.jobs.items() if key != change.key and _place(other) == _place(job) is not None
        ]
        if duplicates:
            yield f"{change.revision}: Job {path} is a second one for {_place(job)}"

    def unlike_their_split(self) -> Iterator[str]:
        """Yield a violation for each HyperJob without a phase, or whose Jobs differ from its split; call it at rest."""
        for uid, hyperjob in self.hyperjobs.items():
            status = hyperjob.get("status", {})
            if not status.get("phase"):
                yield f"HyperJob {hyperjob['metadata']['name']} has no phase"
            parts = status.get("split", {}).get("parts", [])
            needed = {part["name"] for part in parts if part["phase"] not in _OVER}
            if status.get("phase") in {*_OVER, "Suspended"}:
                needed = set()
            names = {key[1] for key, job in self.jobs.items() if hyperjob_of(job) == uid}
            if not needed <= names <= {part["name"] for part in parts}:
                yield f"HyperJob {hyperjob['metadata']['name']} has {sorted(names)} instead of {sorted(needed)}"


def hyperjob_of(job: dict[str, Any]) -> str:
    """Return the uid of the HyperJob that controls *job*, empty without one."""
    owners = job["metadata"].get("ownerReferences", ())
    return next((owner["uid"] for owner in owners if owner.get("controller") and owner["kind"] == "HyperJob"), "")


def _place(job: dict[str, Any]) -> tuple[str, str, int] | None:
    """Return which part of which HyperJob *job* is; ``None`` if it is none, or its annotation was changed."""
    meta = job["metadata"]
    try:
        mark = json.loads(meta.get("annotations", {}).get(PART_ANNOTATION, ""))
    except ValueError:
        return None
    if not hyperjob_of(job) or not isinstance(mark, dict) or "index" not in mark:
        return None
    return hyperjob_of(job), meta.get("labels", {}).get("volcano.sh/replicatedjob-name", ""), mark["index"]
