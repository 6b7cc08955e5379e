"""What a HyperJob would become, for those who only want to look: its parts as manifests, and why each goes where.

Pure. Nothing is known here of what has become of it already but its status.
"""

from dataclasses import dataclass

from controller.api.hyperjob_validation import hyperjob_violations
from controller.api.hyperjobs import HyperJob
from controller.api.hyperjobstatus import PartStatus
from controller.hyperjob.children import Child, children
from controller.hyperjob.counting import SplitError
from controller.hyperjob.course import specification
from controller.hyperjob.split import Prospects, part_demands, split
from controller.hyperjob.trouble import Trouble


@dataclass(frozen=True, slots=True)
class Preview:
    """The parts of a HyperJob; *trouble* says why they cannot all start now, or why there are none."""

    parts: tuple[PartStatus, ...] = ()
    trouble: Trouble | None = None
    is_decided: bool = False
    """Whether the controller has split it like this already."""


def preview(hyperjob: HyperJob, prospects: Prospects) -> Preview:
    """Return the parts that *hyperjob* has, or else those that the clusters suggest now."""
    wrong = hyperjob_violations(hyperjob, prospects.max_parts)
    if wrong:
        return Preview(trouble=Trouble("Invalid", f"it cannot be split: {'; '.join(wrong)}"))
    known = hyperjob.status.split
    if known is not None and known.parts and known.specification == specification(hyperjob):
        return _checked(hyperjob, Preview(known.parts, is_decided=True))
    try:
        layout = split(hyperjob, prospects)
    except SplitError as error:
        return Preview(trouble=Trouble("Invalid", f"it cannot be split: {error}"))
    return _checked(hyperjob, Preview(layout.parts, layout.trouble))


def _checked(hyperjob: HyperJob, found: Preview) -> Preview:
    """Return *found*, or that it is invalid where what a part asks for cannot be counted."""
    try:
        part_demands(hyperjob, found.parts)
    except (SplitError, LookupError, ValueError) as error:
        return Preview(trouble=Trouble("Invalid", f"what its parts ask for cannot be counted: {error}"))
    return found


def parts_of(hyperjob: HyperJob, found: Preview) -> list[Child]:
    """Return the parts of *hyperjob* as the objects they become; none for one that is finished or suspended."""
    if hyperjob.status.is_finished or hyperjob.spec.suspend:
        return []
    return children(hyperjob, found.parts)
