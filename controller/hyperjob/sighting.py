"""What is seen of HyperJobs and of the objects made for them, decoded once and kept; there are few of them.

Whose an object is says its controlling owner's uid, never its labels or its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from controller.api.hyperjobs import HyperJob, HyperJobError, Metadata, read_hyperjob, read_status
from controller.api.hyperjobstatus import HyperJobStatus
from controller.api.keys import HYPERJOB_NAME, JOBS, PART, PROPAGATION_POLICIES, Resource
from controller.cache.facts import ObjectKey
from controller.hyperjob.trouble import Trouble

COUNTS = ("pending", "running", "succeeded", "failed", "terminating", "unknown")


@dataclass(frozen=True, slots=True)
class HyperJobSighting:
    """A HyperJob as it was at one resourceVersion; *flaw* says why it could not be read."""

    uid: str
    resource_version: int
    key: ObjectKey
    api_version: str
    generation: int = 0
    hyperjob: HyperJob | None = None
    status: HyperJobStatus = field(default_factory=HyperJobStatus)
    flaw: str = ""
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """What we wrote on an object when we made it, or changed it last."""

    attempt: int = 0
    template: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class ChildSighting:
    """A Job or a PropagationPolicy as it was at one resourceVersion."""

    resource: Resource
    uid: str
    resource_version: int
    key: ObjectKey
    owner: str
    """The uid of its controlling owner; empty where it has none."""
    hyperjob: str
    """The name in its label; a hint only."""
    mark: Mark
    deleting: bool
    manifest: Mapping[str, Any]
    """All of it but its status; empty where nothing controls it."""
    state: Mapping[str, Any]
    """``status.state`` of a Job."""
    counts: Mapping[str, int]
    """Pods by state, as a Job's status tells."""

    @property
    def phase(self) -> str:
        """Return the phase of a Job; empty where it has told none."""
        found = self.state.get("phase")
        return found if isinstance(found, str) else ""

    def is_of(self, uid: str) -> bool:
        """Say whether the HyperJob *uid* has made it."""
        return self.owner == uid


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the binding of a part is; without clusters it waits, and *trouble* says why."""

    clusters: tuple[str, ...] = ()
    trouble: Trouble | None = None


def see_hyperjob(raw: bytes, resource: Resource) -> HyperJobSighting:
    """Return what *raw* says; lists leave out what kind their items are."""
    document = {**msgspec.json.decode(raw), "apiVersion": resource.api_version}
    metadata = document["metadata"]
    hyperjob, status, flaw = None, HyperJobStatus(), ""
    try:
        status = read_status(document)
        hyperjob = read_hyperjob(document)
    except HyperJobError as error:
        flaw = str(error)
    return HyperJobSighting(
        uid=metadata["uid"],
        resource_version=int(metadata["resourceVersion"]),
        key=ObjectKey(metadata.get("namespace", ""), metadata["name"]),
        api_version=resource.api_version,
        generation=metadata.get("generation", 0),
        hyperjob=hyperjob,
        status=status,
        flaw=flaw,
        deleting="deletionTimestamp" in metadata,
    )


def see_job(raw: bytes) -> ChildSighting:
    """Return what is seen of a Volcano Job."""
    return _see(raw, JOBS)


def see_policy(raw: bytes) -> ChildSighting:
    """Return what is seen of a PropagationPolicy."""
    return _see(raw, PROPAGATION_POLICIES)


def _see(raw: bytes, resource: Resource) -> ChildSighting:
    document = msgspec.json.decode(raw)
    metadata = document["metadata"]
    status = _mapping(document.pop("status", None))
    metadata.pop("managedFields", None)
    owner = next((each["uid"] for each in metadata.get("ownerReferences", ()) if each.get("controller")), "")
    return ChildSighting(
        resource=resource,
        uid=metadata["uid"],
        resource_version=int(metadata["resourceVersion"]),
        key=ObjectKey(metadata.get("namespace", ""), metadata["name"]),
        owner=owner,
        hyperjob=metadata.get("labels", {}).get(HYPERJOB_NAME, ""),
        mark=_mark(metadata.get("annotations", {}).get(PART, "{}")),
        deleting="deletionTimestamp" in metadata,
        # Anybody may label a large Job; what nothing controls is never compared.
        manifest=document if owner else {},
        state=_mapping(status.get("state")),
        counts={name: int(status[name]) for name in COUNTS if isinstance(status.get(name), int | float)},
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mark(text: str) -> Mark:
    """Return the mark; one that somebody has spoilt is none, so that the object is applied anew."""
    try:
        return msgspec.json.decode(text, type=Mark)
    except msgspec.MsgspecError:
        return Mark()


def metadata_of(sighting: HyperJobSighting) -> Metadata:
    """Return who a HyperJob is that could not be read."""
    return Metadata(
        name=sighting.key.name, namespace=sighting.key.namespace, uid=sighting.uid, generation=sighting.generation
    )


def covers(seen: Any, wanted: Any) -> bool:
    """Say whether *seen* has all that is *wanted*; what the server or others have added does not matter."""
    if isinstance(wanted, dict):
        return isinstance(seen, dict) and all(
            name in seen and covers(seen[name], each) for name, each in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(seen, list)
            and len(seen) == len(wanted)
            and all(covers(one, other) for one, other in zip(seen, wanted, strict=True))
        )
    return bool(seen == wanted)
