"""Selects the policy that propagates a template, and manages its claim.

A claimed template stays with its policy while that policy selects it. Preemption of policies is not supported.
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
    """How specifically a policy selects a template; higher is more specific."""

    NONE = 0
    ALL = 1
    LABELS = 2
    NAME = 3


@dataclass(frozen=True, slots=True)
class Claim:
    """Labels and annotations that name the policy of a template or binding."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @classmethod
    def of(cls, policy: Object) -> Self:
        """Return the claim of a policy with a permanent id."""
        key = key_of(policy)
        if is_a(policy, CLUSTER_POLICY):
            labels = {names.CLUSTER_POLICY_ID: labels_of(policy)[names.CLUSTER_POLICY_ID]}
            return cls(labels, {names.CLUSTER_POLICY_NAME: key.name})
        labels = {names.POLICY_ID: labels_of(policy)[names.POLICY_ID]}
        return cls(labels, {names.POLICY_NAME: key.name, names.POLICY_NAMESPACE: key.namespace})


_CLAIM_LABELS = frozenset({names.POLICY_ID, names.CLUSTER_POLICY_ID})
_CLAIM_ANNOTATIONS = frozenset({names.POLICY_NAME, names.POLICY_NAMESPACE, names.CLUSTER_POLICY_NAME})


def permanent_id_label(policy: Object) -> str:
    """Return the label with the permanent id of a policy of this kind."""
    return names.CLUSTER_POLICY_ID if is_a(policy, CLUSTER_POLICY) else names.POLICY_ID


def policy_of(template: Object, policies: Iterable[Object]) -> Object | None:
    """Return the policy that propagates *template*: the claiming one, otherwise the best that selects it.

    Policies of the namespace precede cluster policies. Then explicit priority, specificity and name decide.
    """
    found = [
        (closeness, item) for item in policies if (closeness := _closeness(item, template)) and not is_terminating(item)
    ]
    claimed = next((policy for _, policy in found if key_of(policy) == claimed_by(template, policy)), None)
    if claimed is not None or not found:
        return claimed
    return min(found, key=lambda pair: _rank(*pair))[1]


def selects_or_claims(policy: Object, template: Object) -> bool:
    """Return whether a policy selects *template* or has claimed it."""
    return bool(_closeness(policy, template)) or claimed_by(template, policy) == key_of(policy)


def claimed_by(item: Object, policy: Object) -> Key | None:
    """Return the key of the policy of *policy*'s kind that claims *item*."""
    annotations = annotations_of(item)
    if is_a(policy, CLUSTER_POLICY):
        named = annotations.get(names.CLUSTER_POLICY_NAME)
        return Key("", named) if named else None
    named = annotations.get(names.POLICY_NAME)
    return Key(annotations.get(names.POLICY_NAMESPACE, ""), named) if named else None


def is_claimed(item: Object) -> bool:
    """Return whether a policy claims *item*."""
    return not _CLAIM_LABELS.isdisjoint(labels_of(item))


def with_claim(item: Object, claim: Claim) -> Object:
    """Return *item* with exactly this claim."""
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
    """Return the most specific match of the policy's selectors."""
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
    if selector.get("name"):  # with a name the label selector is ignored
        return Match.NAME if selector["name"] == key.name else Match.NONE
    if selector.get("labelSelector") is None:
        return Match.ALL
    return Match.LABELS if labels_match(selector["labelSelector"], labels_of(template)) else Match.NONE


def _without(fields: Mapping[str, str], left_out: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if name not in left_out}
