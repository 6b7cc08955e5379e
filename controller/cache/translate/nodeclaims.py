"""Translates a pod template's node selector, affinity and tolerations into one text, equal for equal claims."""

import sys

import msgspec

from controller.api.nodeclaims import Affinity, NodeClaim, Toleration, encode_node_claim
from controller.api.pods import PodSpec

#: A longer claim counts as unreadable: claims are cached for every workload class and sent with every query.
_MAX_CHARACTERS = 16_384


def node_claim(pod: PodSpec) -> str | None:
    """Return the node claim of *pod*, empty for none; ``None`` where it is unreadable or too long."""
    if pod.node_selector is None and pod.affinity is None and pod.tolerations is None:
        return ""
    try:
        affinity = msgspec.convert(pod.affinity or {}, Affinity).node_affinity
        claim = NodeClaim(
            node_selector=msgspec.convert(pod.node_selector or {}, dict[str, str]),
            node_affinity=affinity.required if affinity is not None else None,
            tolerations=msgspec.convert(pod.tolerations or [], list[Toleration]),
        )
        text = encode_node_claim(claim)
    except (msgspec.ValidationError, RecursionError, UnicodeEncodeError):
        return None
    return sys.intern(text) if len(text) <= _MAX_CHARACTERS else None
