"""Decodes the observed HyperJobs and their objects, and derives the phase of each part.

A HyperJob is cached as JSON with its status, because a decoded one takes about twenty times its size. The UID of the
controlling owner decides to which HyperJob an object belongs, never labels or names. A part in a terminal phase never
leaves it, whatever is observed later.
"""

from array import array
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from controller.api.hyperjobs import (
    HyperJob,
    HyperJobError,
    HyperJobStatus,
    PartPhase,
    PartStatus,
    read_hyperjob,
    read_status,
)
from controller.api.keys import (
    JOBS,
    PART_ANNOTATION,
    POLICY_ANNOTATIONS,
    POLICY_LABELS,
    PROPAGATION_POLICIES,
    Resource,
)
from controller.cache.objects import ObjectKey

POD_STATES = ("pending", "running", "succeeded", "failed", "terminating", "unknown")
TERMINAL: frozenset[PartPhase] = frozenset({"Completed", "Failed"})
_FAILURES = frozenset({"Failed", "Terminated"})
_WAITING = frozenset({"", "Pending", "Aborted", "Aborting"})
#: Maximum size of all HyperJobs that stay decoded, as JSON in which each object counts as at least so many bytes: the
#: model of an empty one takes more than a kilobyte.
_MAX_DECODED_BYTES, _BYTES_OF_OBJECT = 4 * 1024 * 1024, 64


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Code and message of a pending reason."""

    reason: str
    message: str


class _DecodedHyperJobs:
    """The HyperJobs that were used last, decoded."""

    def __init__(self) -> None:
        self._hyperjobs: OrderedDict[tuple[Resource, bytes], HyperJob] = OrderedDict()
        self._size = 0

    def get(self, resource: Resource, raw: bytes) -> HyperJob:
        """Return the HyperJob in *raw*; raise `HyperJobError` if it is invalid."""
        key = resource, raw
        hyperjob = self._hyperjobs.pop(key, None)
        if hyperjob is None:
            hyperjob = read_hyperjob(_document(raw, resource))
            self._size += _decoded_size(raw)
        self._hyperjobs[key] = hyperjob
        while self._size > _MAX_DECODED_BYTES:
            (_, oldest), _ = self._hyperjobs.popitem(last=False)
            self._size -= _decoded_size(oldest)
        return hyperjob


def _decoded_size(raw: bytes) -> int:
    return len(raw) + _BYTES_OF_OBJECT * raw.count(b"{")


_DECODED = _DecodedHyperJobs()


def _document(raw: bytes, resource: Resource) -> dict[str, Any]:
    """Return the JSON object; lists omit the kind, so it comes from *resource*."""
    return {**msgspec.json.decode(raw), "apiVersion": resource.api_version}


@dataclass(frozen=True, slots=True)
class ObservedHyperJob:
    """A HyperJob at one resourceVersion; *decode_error* says why it could not be read."""

    uid: str
    resource_version: int
    key: ObjectKey
    resource: Resource
    raw: bytes
    generation: int = 0
    status: HyperJobStatus = field(default_factory=HyperJobStatus)
    decode_error: str = ""
    deleting: bool = False

    @property
    def api_version(self) -> str:
        """Its API group and version."""
        return self.resource.api_version

    @property
    def hyperjob(self) -> HyperJob | None:
        """The HyperJob, decoded again if it was not used for long; ``None`` if it cannot be read."""
        return None if self.decode_error else _DECODED.get(self.resource, self.raw)


@dataclass(frozen=True, slots=True)
class AppliedRevision:
    """The revision that the controller applied last, from the object's annotation."""

    attempt: int = 0
    template: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class ObservedChild:
    """A Job or a PropagationPolicy at one resourceVersion."""

    resource: Resource
    uid: str
    resource_version: int
    key: ObjectKey
    owner: str
    """UID of its controlling owner; empty if it has none."""
    revision: AppliedRevision
    deleting: bool
    fields: "array[int]"
    """Hashes of all fields except the status (`field_hashes`); empty without controlling owner or revision."""
    state: Mapping[str, Any]
    """``status.state`` of a Job."""
    counts: Mapping[str, int]
    """Number of pods by state, from a Job's status."""
    is_claimed_by_other: bool = False
    """Karmada propagates a Job by another policy than that of its name."""

    @property
    def phase(self) -> str:
        """Phase of a Job; empty if it has none."""
        phase = self.state.get("phase")
        return phase if isinstance(phase, str) else ""

    def is_owned_by(self, uid: str) -> bool:
        """Whether the HyperJob *uid* controls it."""
        return self.owner == uid


@dataclass(frozen=True, slots=True)
class PartPlacement:
    """Clusters of a part's binding; without clusters it is pending, with its reason."""

    clusters: tuple[str, ...] = ()
    pending_reason: PendingReason | None = None
    reported: PartPhase = "Admitted"
    """Phase by the reports of its clusters, which Karmada 1.15 and older do not copy to its Job's status. Unless it is
    final, a final phase in that status precedes the admission."""


def decode_hyperjob(raw: bytes, resource: Resource) -> ObservedHyperJob:
    """Decode a HyperJob."""
    document = _document(raw, resource)
    metadata = document["metadata"]
    status, decode_error = HyperJobStatus(), ""
    try:
        status = read_status(document)
        _DECODED.get(resource, raw)
    except HyperJobError as error:
        decode_error = str(error)
    return ObservedHyperJob(
        uid=metadata["uid"],
        resource_version=int(metadata["resourceVersion"]),
        key=ObjectKey(metadata.get("namespace", ""), metadata["name"]),
        resource=resource,
        raw=raw,
        generation=metadata.get("generation", 0),
        status=status,
        decode_error=decode_error,
        deleting="deletionTimestamp" in metadata,
    )


def decode_part_job(raw: bytes) -> ObservedChild:
    """Decode a Volcano Job of a part."""
    return _decode_child(raw, JOBS)


def decode_part_policy(raw: bytes) -> ObservedChild:
    """Decode a PropagationPolicy of a part."""
    return _decode_child(raw, PROPAGATION_POLICIES)


def _decode_child(raw: bytes, resource: Resource) -> ObservedChild:
    document = msgspec.json.decode(raw)
    metadata = document["metadata"]
    status = _mapping(document.pop("status", None))
    metadata.pop("managedFields", None)
    owner = next(
        (reference["uid"] for reference in metadata.get("ownerReferences", ()) if reference.get("controller")), ""
    )
    labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
    revision = _decode_revision(annotations.get(PART_ANNOTATION, "{}"))
    return ObservedChild(
        resource=resource,
        uid=metadata["uid"],
        resource_version=int(metadata["resourceVersion"]),
        key=ObjectKey(metadata.get("namespace", ""), metadata["name"]),
        owner=owner,
        revision=revision,
        deleting="deletionTimestamp" in metadata,
        # Tenants may label large Jobs. An object without owner is never compared, one without revision always applied.
        fields=field_hashes(document) if owner and revision.digest else array("q"),
        state=_mapping(status.get("state")),
        counts={name: int(status[name]) for name in POD_STATES if isinstance(status.get(name), int | float)},
        is_claimed_by_other=resource is JOBS
        and not labels.keys().isdisjoint(POLICY_LABELS)
        and annotations.get(POLICY_ANNOTATIONS[0]) != metadata["name"],
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _decode_revision(text: str) -> AppliedRevision:
    """Decode the revision; an invalid one is empty, so that the object is applied again."""
    try:
        return msgspec.json.decode(text, type=AppliedRevision)
    except (msgspec.MsgspecError, RecursionError):
        return AppliedRevision()


def field_hashes(document: Mapping[str, Any]) -> "array[int]":
    """Return a hash of each field's path and value, and of each list's length: 8 bytes instead of each value.

    The hashes are salted per process, so that values with equal hashes cannot be constructed.
    """
    hashes: array[int] = array("q")
    rest: list[tuple[int, Any]] = [(0, document)]
    while rest:
        path, value = rest.pop()
        if isinstance(value, dict):
            hashes.append(hash((path, "object")))
            rest += [(hash((path, name)), item) for name, item in value.items()]
        elif isinstance(value, list | tuple):
            hashes.append(hash((path, "list", len(value))))
            rest += [(hash((path, place)), item) for place, item in enumerate(value)]
        else:
            # The API server returns 1.0 as 1. The text is hashed, because -1 and -2 have the same hash.
            whole = isinstance(value, float) and value.is_integer()
            hashes.append(hash((path, repr(int(value) if whole else value))))
    return hashes


def has_all_fields(seen: ObservedChild, wanted: Mapping[str, Any]) -> bool:
    """Whether *seen* has all *wanted* fields; additional fields from the server or others are ignored."""
    return set(seen.fields).issuperset(field_hashes(wanted))


@dataclass(frozen=True, slots=True)
class ObservedParts:
    """Observed objects of a HyperJob's parts, by name; only objects that it owns."""

    jobs: Mapping[str, ObservedChild]
    placement: Mapping[str, PartPlacement]
    """Placements of the parts' bindings, as far as these exist."""


def has_started(part: PartStatus) -> bool:
    """Whether a part was admitted."""
    return part.phase != "Pending"


def has_moved(part: PartStatus, placed: PartPlacement | None) -> bool:
    """Return whether the binding of a part no longer has the cluster where the part ran last."""
    return placed is not None and part.running_on not in {"", *placed.clusters}


def with_observation(part: PartStatus, seen: ObservedParts) -> PartStatus:
    """Return *part* with its observed phase; a terminal phase stays."""
    job = seen.jobs.get(part.name)
    if part.phase in TERMINAL:
        return part
    if job is None or job.revision.attempt != part.attempt:
        return part.model_copy(update={"phase": "Pending"})
    placed = seen.placement.get(part.name)
    phase = _phase(job.phase, placed)
    where = placed.clusters[0] if placed and placed.clusters else part.running_on or part.cluster
    return part.model_copy(update={"phase": phase, "running_on": where if phase != "Pending" else ""})


def _phase(phase: str, placed: PartPlacement | None) -> PartPhase:
    if placed is not None and not placed.clusters:
        # An evicted job is pending, also where its pods complete or fail before the grace period ends (D8).
        return "Pending"
    if phase in {"Completed", *_FAILURES} and placed is not None and placed.reported not in TERMINAL:
        return "Admitted"
    if phase == "Completed":
        return "Completed"
    if phase in _FAILURES:
        return "Failed"
    if placed is None:
        # Without a binding the Job has no pods; its status stays as Karmada wrote it last.
        return "Pending"
    return placed.reported if phase in _WAITING else "Running"


def next_attempt(part: PartStatus, **changes: object) -> PartStatus:
    """Return *part* pending for a new Job; an existing Job of its name belongs to an earlier attempt."""
    attempt = part.attempt + 1 if has_started(part) else part.attempt
    return part.model_copy(
        update={"phase": "Pending", "completed_by": "", "running_on": "", "attempt": attempt, **changes}
    )
