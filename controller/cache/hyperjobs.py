"""Tracks the HyperJobs: what each says about its Jobs, and which templates its change concerns.

Only the list of a HyperJob decides which Jobs are its parts; what a Job says is untrusted.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from controller.cache.index import Index
from controller.cache.objects import CachedHyperJob, CachedTemplate, TemplateKey
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.workloads import HyperJobGang


class Membership(NamedTuple):
    """Properties of a Job that follow from its HyperJob; *created_at* is ``None`` where the Job's own age counts."""

    gang: HyperJobGang | None = None
    created_at: int | None = None
    hold: Refusal | None = None
    """Why the Job stays pending: its HyperJob does not list it, or is being deleted."""


NOT_A_PART = Membership()

_NOT_LISTED = Membership(hold=Refusal(Reason.HYPERJOB_INCOMPLETE, subject="its HyperJob does not list it as a part"))

_BEING_DELETED = Refusal(Reason.HYPERJOB_INCOMPLETE, subject="its HyperJob is being deleted")


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
    # Jobs may be recreated while the HyperJob is pending, so its age counts, but only for Jobs younger than it.
    created_at = min(hyperjob.created_at, template.created_at)
    if template.key.name in hyperjob.finished:
        return Membership(created_at=created_at)
    finished = len(hyperjob.finished)
    parts = len(hyperjob.parts) - finished
    minimum = min(max(hyperjob.minimum - finished, 1), parts)
    hold = _BEING_DELETED if hyperjob.deleting else None
    return Membership(HyperJobGang(f"{uid}/{split}", parts, minimum), created_at, hold)


class HyperJobs:
    """The HyperJobs by UID, and the templates that name them."""

    def __init__(self) -> None:
        self.by_uid: dict[str, CachedHyperJob] | None = None
        """``None`` without a HyperJob controller."""
        self._uids: Index[TemplateKey, str] = Index()
        self._templates: Index[str, TemplateKey] = Index()

    def expect(self) -> None:
        """Expect HyperJobs: a Job that refers to a HyperJob stays pending until the HyperJob lists it."""
        self.by_uid = {} if self.by_uid is None else self.by_uid

    def update(self, uid: str, cached: CachedHyperJob | None) -> bool:
        """Update the HyperJob *uid*, ``None`` if it was deleted or cannot be read; return whether that is a change."""
        known = self.by_uid if self.by_uid is not None else {}
        if known.get(uid) == cached:
            return False
        before = known.pop(uid, None)
        if before is not None and before.key is not None:
            self._uids.discard(before.key, uid)
        if cached is not None:
            known[uid] = cached
            if cached.key is not None:
                self._uids.add(cached.key, uid)
        return True

    def template_changed(self, before: CachedTemplate | None, after: CachedTemplate | None) -> None:
        """Update which HyperJob a template names."""
        if before is not None and before.hyperjob is not None:
            self._templates.discard(before.hyperjob.hyperjob, before.key)
        if after is not None and after.hyperjob is not None:
            self._templates.add(after.hyperjob.hyperjob, after.key)

    def templates_of(self, uid: str) -> Iterable[TemplateKey]:
        """Return the templates that name the HyperJob *uid*."""
        return self._templates.of(uid)

    def templates_of_key(self, key: TemplateKey) -> Iterator[TemplateKey]:
        """Yield the templates that name the HyperJob with this *key*."""
        for uid in self._uids.of(key):
            yield from self._templates.of(uid)
