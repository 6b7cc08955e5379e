"""Resolves which Jobs are parts of a HyperJob. Only the HyperJob's list counts; the Job's annotation is untrusted."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from controller.api.keys import GROUP_ANNOTATION, HYPERJOB_GROUPS, HYPERJOB_KIND
from controller.api.meta import ObjectMeta
from controller.cache.objects import CachedHyperJob, CachedTemplate, HyperJobReference
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.workloads import HyperJobGang


class _GroupAnnotation(msgspec.Struct):
    uid: str
    split: str = ""


class Membership(NamedTuple):
    """Properties of a Job that follow from its HyperJob; *created_at* is ``None`` where the Job's own age counts."""

    group: HyperJobGang | None = None
    created_at: int | None = None
    hold: Refusal | None = None
    """Why the Job stays pending: its HyperJob does not list it."""


NOT_A_PART = Membership()
_NOT_LISTED = Membership(hold=Refusal(Reason.HYPERJOB_INCOMPLETE, subject="its HyperJob does not list it as a part"))

_GROUP_ANNOTATIONS = msgspec.json.Decoder(_GroupAnnotation)


def owner_uid(meta: ObjectMeta) -> str:
    """Return the UID of the HyperJob that controls an object, empty if none does."""
    for reference in meta.owner_references:
        if (
            reference.controller
            and reference.kind == HYPERJOB_KIND
            and reference.api_version.partition("/")[0] in HYPERJOB_GROUPS
        ):
            return reference.uid
    return ""


def hyperjob_reference(meta: ObjectMeta) -> HyperJobReference | None:
    """Return the HyperJob and split that an object names, ``None`` unless that HyperJob controls it."""
    text, uid = meta.annotations.get(GROUP_ANNOTATION), owner_uid(meta)
    if not uid or text is None:
        return None
    try:
        written = _GROUP_ANNOTATIONS.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return HyperJobReference(uid, written.split) if written.uid == uid else None


def resolve_membership(template: CachedTemplate | None, known: Mapping[str, CachedHyperJob] | None) -> Membership:
    """Return what the HyperJobs *known* say about *template*; *known* is ``None`` without a HyperJob controller.

    A Job that its HyperJob does not list, or that refers to an unknown HyperJob, stays pending: it is about to be
    deleted, or a user created it.
    """
    if template is None or template.hyperjob is None or known is None:
        return NOT_A_PART
    uid, split = template.hyperjob
    hyperjob = known.get(uid)
    if hyperjob is None or hyperjob.namespace != template.key.namespace:
        return _NOT_LISTED
    if hyperjob.split != split or template.key.name not in hyperjob.parts:
        return _NOT_LISTED
    parts = len(hyperjob.parts)
    # Jobs may be recreated while the HyperJob is pending, so its age counts, but only for Jobs younger than it.
    created_at = min(hyperjob.created_at, template.created_at)
    return Membership(HyperJobGang(f"{uid}/{split}", parts, min(max(hyperjob.minimum, 1), parts)), created_at)
