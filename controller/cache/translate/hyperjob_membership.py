"""Which Jobs are parts of a HyperJob, as the HyperJob itself says; a Job's own word is a claim and proves nothing."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from controller.api.keys import GROUP_ANNOTATION, HYPERJOB_GROUPS, HYPERJOB_KIND
from controller.api.meta import ObjectMeta
from controller.cache.objects import CachedHyperJob, CachedTemplate, HyperJobReference
from controller.engine.reasons import Reason, Refusal
from controller.engine.workloads import HyperJobGang


class _GroupAnnotation(msgspec.Struct):
    uid: str
    split: str = ""


class Membership(NamedTuple):
    """What follows for a Job from its HyperJob; *since* is ``None`` where the Job's own age counts."""

    group: HyperJobGang | None = None
    since: int | None = None
    hold: Refusal | None = None
    """Why it waits although it may be no part: its HyperJob does not list it, or not any more."""


NOT_A_PART = Membership()
_NOT_LISTED = Membership(hold=Refusal(Reason.HYPERJOB_INCOMPLETE, subject="its HyperJob does not list it as a part"))

_GROUP_ANNOTATIONS = msgspec.json.Decoder(_GroupAnnotation)


def owner_uid(meta: ObjectMeta) -> str:
    """Return the uid of the HyperJob that controls an object, or nothing."""
    for each in meta.owner_references:
        if each.controller and each.kind == HYPERJOB_KIND and each.api_version.partition("/")[0] in HYPERJOB_GROUPS:
            return each.uid
    return ""


def hyperjob_reference(meta: ObjectMeta) -> HyperJobReference | None:
    """Return which HyperJob an object claims to be part of; nothing where that one does not control it."""
    text, uid = meta.annotations.get(GROUP_ANNOTATION), owner_uid(meta)
    if not uid or text is None:
        return None
    try:
        written = _GROUP_ANNOTATIONS.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return HyperJobReference(uid, written.split) if written.uid == uid else None


def resolve_membership(template: CachedTemplate | None, known: Mapping[str, CachedHyperJob] | None) -> Membership:
    """Return what the HyperJobs that are *known* say of *template*; with ``None`` nobody splits HyperJobs here.

    A Job whose HyperJob is not known, or does not list it, waits: it is about to be deleted, or nobody made it.
    """
    if template is None or template.claim is None or known is None:
        return NOT_A_PART
    uid, split = template.claim
    hyperjob = known.get(uid)
    if hyperjob is None or hyperjob.namespace != template.key.namespace:
        return _NOT_LISTED
    if hyperjob.split != split or template.key.name not in hyperjob.parts:
        return _NOT_LISTED
    parts = len(hyperjob.parts)
    # Its Jobs may be made anew while it waits; none is older than the HyperJob, and none is made older by it.
    since = min(hyperjob.since, template.since)
    return Membership(HyperJobGang(f"{uid}/{split}", parts, min(max(hyperjob.minimum, 1), parts)), since)
