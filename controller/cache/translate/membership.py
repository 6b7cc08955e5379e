"""What a HyperJob says of the Jobs it has made: which of them are admitted together, and how old they are."""

from datetime import datetime
from typing import NamedTuple

import msgspec

from controller.api.keys import GROUP, HYPERJOB_GROUPS, HYPERJOB_KIND
from controller.api.meta import ObjectMeta
from controller.cache.translate.amounts import milliseconds
from controller.engine.workloads import Group


class _Written(msgspec.Struct, rename="camel"):
    uid: str
    split: str = ""
    parts: int = 1
    min_available: int = 1
    since: str = ""


class Membership(NamedTuple):
    """What is kept of it; *since* is ``None`` where the Job's own age counts."""

    group: Group | None = None
    since: int | None = None


_groups = msgspec.json.Decoder(_Written)


def owner(meta: ObjectMeta) -> str:
    """Return the uid of the HyperJob that owns an object, or nothing."""
    for each in meta.owner_references:
        if each.kind == HYPERJOB_KIND and each.api_version.partition("/")[0] in HYPERJOB_GROUPS:
            return each.uid
    return ""


def membership(meta: ObjectMeta) -> Membership:
    """Return what a HyperJob says of an object; nothing where it is not the owner, whatever is written there."""
    text, uid = meta.annotations.get(GROUP), owner(meta)
    if not uid or text is None:
        return Membership()
    try:
        written = _groups.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return Membership()
    if written.uid != uid:
        return Membership()
    parts = max(written.parts, 1)
    group = Group(f"{uid}/{written.split}", parts, min(max(written.min_available, 1), parts))
    return Membership(group, _instant(written.since))


def _instant(text: str) -> int | None:
    try:
        return milliseconds(datetime.fromisoformat(text))
    except ValueError:
        return None
