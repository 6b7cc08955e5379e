"""Previews the parts of a HyperJob as manifests, for the command line.

Pure. Of the actual objects only the HyperJob's status is known.
"""

from dataclasses import dataclass

from controller.api.hyperjob_validation import hyperjob_violations
from controller.api.hyperjobs import HyperJob, PartStatus, SplitStatus
from controller.controllers.hyperjob.children import PartObjects, build_parts
from controller.controllers.hyperjob.observed import PendingReason
from controller.controllers.hyperjob.pod_distribution import SplitError
from controller.controllers.hyperjob.split import CapacitySnapshot, requests_of_parts, split
from controller.controllers.hyperjob.state import max_parts


@dataclass(frozen=True, slots=True)
class Preview:
    """The parts of a HyperJob, and why they cannot all start now or do not exist."""

    parts: tuple[PartStatus, ...] = ()
    pending_reason: PendingReason | None = None
    is_decided: bool = False
    """Whether the controller has already split it like this."""


def preview(hyperjob: HyperJob, capacity: CapacitySnapshot) -> Preview:
    """Return the current parts of *hyperjob*, or those that would be created now."""
    known = hyperjob.status.split or SplitStatus()
    wrong = hyperjob_violations(hyperjob, max_parts(hyperjob, known, capacity))
    if wrong:
        return Preview(pending_reason=PendingReason("Invalid", f"it cannot be split: {'; '.join(wrong)}"))
    if known.parts and known.specification == hyperjob.split_fingerprint:
        return _check_requests(hyperjob, Preview(known.parts, is_decided=True))
    try:
        layout = split(hyperjob, capacity.with_data_of(hyperjob))
    except SplitError as error:
        return Preview(pending_reason=PendingReason("Invalid", f"it cannot be split: {error}"))
    return _check_requests(hyperjob, Preview(layout.parts, layout.pending_reason))


def _check_requests(hyperjob: HyperJob, previewed: Preview) -> Preview:
    """Return *previewed*, or an invalid preview if the requests of a part cannot be counted."""
    try:
        requests_of_parts(hyperjob, previewed.parts)
    except (SplitError, LookupError, ValueError) as error:
        return Preview(pending_reason=PendingReason("Invalid", f"the requests of its parts cannot be counted: {error}"))
    return previewed


def preview_objects(hyperjob: HyperJob, previewed: Preview) -> list[PartObjects]:
    """Return the objects of the parts of *hyperjob*; none if it is finished, suspended or invalid."""
    if hyperjob.status.is_finished or hyperjob.spec.suspend or not previewed.parts:
        return []
    return build_parts(hyperjob, previewed.parts)
