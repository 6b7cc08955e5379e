"""Which policy propagates a template, and the claim by which the template keeps to it.

Pure. Once claimed, a template stays with its policy while that still selects
it, whatever other policies come; preemption of policies is left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from localup.karmada import names
from localup.karmada.kinds import CLUSTER_POLICY, is_a
from localup.karmada.objects import (
    Key,
    Object,
    annotations_of,
    is_terminating,
    key_of,
    labels_of,
    spec_of,
    with_metadata,
)
from localup.karmada.selectors import labels_match


class Match(IntEnum):
    """How closely a policy selects a template: the closer, the higher."""

    NONE = 0
    ALL = 1
    LABELS = 2
    NAME = 3


@dataclass(frozen=True, slots=True)
class Claim:
    """The labels and annotations by which a template or a binding says whose it is."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @classmethod
    def of(cls, policy: Object) -> Self:
        """Return the claim of a policy, which has its permanent id already."""
        key = key_of(policy)
        if is_a(policy, CLUSTER_POLICY):
            labels = {names.CLUSTER_POLICY_ID: labels_of(policy)[names.CLUSTER_POLICY_ID]}
            return cls(labels, {names.CLUSTER_POLICY_NAME: key.name})
        labels = {names.POLICY_ID: labels_of(policy)[names.POLICY_ID]}
        return cls(labels, {names.POLICY_NAME: key.name, names.POLICY_NAMESPACE: key.namespace})


_CLAIM_LABELS = frozenset({names.POLICY_ID, names.CLUSTER_POLICY_ID})
_CLAIM_ANNOTATIONS = frozenset({names.POLICY_NAME, names.POLICY_NAMESPACE, names.CLUSTER_POLICY_NAME})


def permanent_id_label(policy: Object) -> str:
    """Return the label that holds the permanent id of a policy of its kind."""
    return names.CLUSTER_POLICY_ID if is_a(policy, CLUSTER_POLICY) else names.POLICY_ID


def policy_of(template: Object, policies: Iterable[Object]) -> Object | None:
    """Return the policy that propagates *template*: the one that claimed it, else the best that selects it.

    Policies of the namespace come before those of the whole control plane; then
    the explicit priority counts, then how closely they select, then the name.
    """
    found = [
        (closeness, item) for item in policies if (closeness := _closeness(item, template)) and not is_terminating(item)
    ]
    claimed = next((policy for _, policy in found if key_of(policy) == claimed_by(template, policy)), None)
    if claimed is not None or not found:
        return claimed
    return min(found, key=lambda pair: _rank(*pair))[1]


def selects_or_claims(policy: Object, template: Object) -> bool:
    """Say whether a policy selects *template*, or holds it although it does not any more."""
    return bool(_closeness(policy, template)) or claimed_by(template, policy) == key_of(policy)


def claimed_by(item: Object, policy: Object) -> Key | None:
    """Return the key of the policy, of the kind that *policy* is, by which *item* is claimed."""
    annotations = annotations_of(item)
    if is_a(policy, CLUSTER_POLICY):
        named = annotations.get(names.CLUSTER_POLICY_NAME)
        return Key("", named) if named else None
    named = annotations.get(names.POLICY_NAME)
    return Key(annotations.get(names.POLICY_NAMESPACE, ""), named) if named else None


def is_claimed(item: Object) -> bool:
    """Say whether a policy holds *item*."""
    return not _CLAIM_LABELS.isdisjoint(labels_of(item))


def with_claim(item: Object, claim: Claim) -> Object:
    """Return *item* with the claim on it and no other."""
    return with_metadata(
        item,
        labels={**_without(labels_of(item), _CLAIM_LABELS), **claim.labels},
        annotations={**_without(annotations_of(item), _CLAIM_ANNOTATIONS), **claim.annotations},
    )


def without_claim(item: Object) -> Object:
    """Return *item* without any claim."""
    return with_claim(item, Claim({}, {}))


def _rank(closeness: Match, policy: Object) -> tuple[bool, int, int, str]:
    priority = spec_of(policy).get("priority") or 0
    return is_a(policy, CLUSTER_POLICY), -priority, -closeness, policy["metadata"]["name"]


def _closeness(policy: Object, template: Object) -> Match:
    """Return the closest match among the policy's selectors."""
    home = key_of(policy).namespace
    if home and home != key_of(template).namespace:
        return Match.NONE
    selectors = spec_of(policy).get("resourceSelectors") or ()
    return max((_selects(selector, template) for selector in selectors), default=Match.NONE)


def _selects(selector: Object, template: Object) -> Match:
    key = key_of(template)
    if (selector["apiVersion"], selector["kind"]) != (template["apiVersion"], template["kind"]):
        return Match.NONE
    if selector.get("namespace", "") not in {"", key.namespace}:
        return Match.NONE
    if selector.get("name"):  # the label selector beside a name is ignored
        return Match.NAME if selector["name"] == key.name else Match.NONE
    if selector.get("labelSelector") is None:
        return Match.ALL
    return Match.LABELS if labels_match(selector["labelSelector"], labels_of(template)) else Match.NONE


def _without(fields: Mapping[str, str], left_out: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if name not in left_out}
