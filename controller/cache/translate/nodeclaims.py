"""What a pod template asks of its node, as the engine keeps it: one text, equal for equal claims."""

import sys

import msgspec

from controller.api.nodeclaims import Affinity, NodeClaim, Toleration, encode_node_claim
from controller.api.pods import PodSpec

#: A longer claim counts as unreadable: it is kept for every workload of the shape and sent with every question.
_MAX_CHARACTERS = 16_384


def node_claim(pod: PodSpec) -> str | None:
    """Return what *pod* asks of its node, empty for nothing; ``None`` where that is unreadable or very long."""
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
