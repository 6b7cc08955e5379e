"""What is seen of HyperJobs and of the objects made for them, decoded once and kept; there are few of them.

Whose an object is says its controlling owner's uid, never its labels or its name.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from controller.api.hyperjobs import HyperJob, HyperJobError, Metadata, read_hyperjob, read_status
from controller.api.hyperjobstatus import HyperJobStatus
from controller.api.keys import HYPERJOB_NAME_LABEL, JOBS, PART_ANNOTATION, PROPAGATION_POLICIES, Resource
from controller.cache.objects import ObjectKey
from controller.hyperjob.pending_reason import PendingReason

POD_STATES = ("pending", "running", "succeeded", "failed", "terminating", "unknown")


@dataclass(frozen=True, slots=True)
class ObservedHyperJob:
    """A HyperJob as it was at one resourceVersion; *flaw* says why it could not be read."""

    uid: str
    resource_version: int
    key: ObjectKey
    api_version: str
    generation: int = 0
    hyperjob: HyperJob | None = None
    status: HyperJobStatus = field(default_factory=HyperJobStatus)
    decode_error: str = ""
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class AppliedRevision:
    """What we wrote on an object when we made it, or changed it last."""

    attempt: int = 0
    template: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class ObservedChild:
    """A Job or a PropagationPolicy as it was at one resourceVersion."""

    resource: Resource
    uid: str
    resource_version: int
    key: ObjectKey
    owner: str
    """The uid of its controlling owner; empty where it has none."""
    hyperjob: str
    """The name in its label; a hint only."""
    revision: AppliedRevision
    deleting: bool
    fields: "array[int]"
    """Hashes of all its fields but the status (`field_hashes`); none where nothing controls it or it has no mark."""
    state: Mapping[str, Any]
    """``status.state`` of a Job."""
    counts: Mapping[str, int]
    """Pods by state, as a Job's status tells."""

    @property
    def phase(self) -> str:
        """Return the phase of a Job; empty where it has told none."""
        found = self.state.get("phase")
        return found if isinstance(found, str) else ""

    def is_owned_by(self, uid: str) -> bool:
        """Say whether the HyperJob *uid* has made it."""
        return self.owner == uid


@dataclass(frozen=True, slots=True)
class PartPlacement:
    """Where the binding of a part is; without clusters it waits, and *trouble* says why."""

    clusters: tuple[str, ...] = ()
    pending_reason: PendingReason | None = None


def decode_hyperjob(raw: bytes, resource: Resource) -> ObservedHyperJob:
    """Return what *raw* says; lists leave out what kind their items are."""
    document = {**msgspec.json.decode(raw), "apiVersion": resource.api_version}
    metadata = document["metadata"]
    hyperjob, status, flaw = None, HyperJobStatus(), ""
    try:
        status = read_status(document)
        hyperjob = read_hyperjob(document)
    except HyperJobError as error:
        flaw = str(error)
    return ObservedHyperJob(
        uid=metadata["uid"],
        resource_version=int(metadata["resourceVersion"]),
        key=ObjectKey(metadata.get("namespace", ""), metadata["name"]),
        api_version=resource.api_version,
        generation=metadata.get("generation", 0),
        hyperjob=hyperjob,
        status=status,
        decode_error=flaw,
        deleting="deletionTimestamp" in metadata,
    )


def decode_part_job(raw: bytes) -> ObservedChild:
    """Return what is seen of a Volcano Job."""
    return _decode_child(raw, JOBS)


def decode_part_policy(raw: bytes) -> ObservedChild:
    """Return what is seen of a PropagationPolicy."""
    return _decode_child(raw, PROPAGATION_POLICIES)


def _decode_child(raw: bytes, resource: Resource) -> ObservedChild:
    document = msgspec.json.decode(raw)
    metadata = document["metadata"]
    status = _mapping(document.pop("status", None))
    metadata.pop("managedFields", None)
    owner = next((each["uid"] for each in metadata.get("ownerReferences", ()) if each.get("controller")), "")
    revision = _decode_revision(metadata.get("annotations", {}).get(PART_ANNOTATION, "{}"))
    return ObservedChild(
        resource=resource,
        uid=metadata["uid"],
        resource_version=int(metadata["resourceVersion"]),
        key=ObjectKey(metadata.get("namespace", ""), metadata["name"]),
        owner=owner,
        hyperjob=metadata.get("labels", {}).get(HYPERJOB_NAME_LABEL, ""),
        revision=revision,
        deleting="deletionTimestamp" in metadata,
        # Any tenant may label a large Job. Without an owner or a mark it is never compared, or always applied.
        fields=field_hashes(document) if owner and revision.digest else array("q"),
        state=_mapping(status.get("state")),
        counts={name: int(status[name]) for name in POD_STATES if isinstance(status.get(name), int | float)},
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _decode_revision(text: str) -> AppliedRevision:
    """Return the mark; one that somebody has spoilt is none, so that the object is applied anew."""
    try:
        return msgspec.json.decode(text, type=AppliedRevision)
    except msgspec.MsgspecError:
        return AppliedRevision()


def metadata_of(sighting: ObservedHyperJob) -> Metadata:
    """Return who a HyperJob is that could not be read."""
    return Metadata(
        name=sighting.key.name, namespace=sighting.key.namespace, uid=sighting.uid, generation=sighting.generation
    )


def field_hashes(document: Mapping[str, Any]) -> "array[int]":
    """Return a hash of each field's path and value, and of each list's length: 8 bytes in place of each value.

    Hashes differ from process to process, so that nobody can choose values of equal hashes.
    """
    hashes: array[int] = array("q")
    rest: list[tuple[int, Any]] = [(0, document)]
    while rest:
        path, value = rest.pop()
        if isinstance(value, dict):
            hashes.append(hash((path, "object")))
            rest += [(hash((path, name)), each) for name, each in value.items()]
        elif isinstance(value, list | tuple):
            hashes.append(hash((path, "list", len(value))))
            rest += [(hash((path, place)), each) for place, each in enumerate(value)]
        else:
            # The API server returns 1.0 as 1. The text, because -1 and -2 have the same hash.
            whole = isinstance(value, float) and value.is_integer()
            hashes.append(hash((path, repr(int(value) if whole else value))))
    return hashes


def has_all_fields(seen: ObservedChild, wanted: Mapping[str, Any]) -> bool:
    """Say whether *seen* has all fields that are *wanted*; fields that the server or others added do not matter."""
    return set(seen.fields).issuperset(field_hashes(wanted))
