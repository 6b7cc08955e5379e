"""Compares a webhook configuration with the desired one.

Pure. Every field of every webhook is compared except the value of the CA bundle, which is rotated: it must only be
present. Labels and annotations are ignored.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

Configuration = Mapping[str, Any]
Webhook = Mapping[str, Any]

#: Defaults of the API server.
_DEFAULTS: Mapping[str, Any] = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "matchConditions": [],
    "namespaceSelector": {},
    "objectSelector": {},
    "reinvocationPolicy": "Never",
    "timeoutSeconds": 10,
}
_BINDINGS_WEBHOOK = "resourcebindings.volcano-global.io"
_SUSPENDED_RESOURCES = {"resourcebindings", "clusterresourcebindings"}


def diff(desired: Configuration, observed: Configuration | None) -> list[str]:
    """Return the differences of *observed* from *desired*, one sentence per field; ``None`` means a missing object."""
    if observed is None:
        return ["it is not there"]
    wants, has = _by_name(desired), _by_name(observed)
    missing = [f"webhook {name} is missing" for name in sorted(wants.keys() - has.keys())]
    unknown = [f"webhook {name} is unexpected" for name in sorted(has.keys() - wants.keys())]
    shared = sorted(wants.keys() & has.keys())
    changed = [text for name in shared for text in _changed_fields(name, wants[name], has[name])]
    return [*missing, *unknown, *changed]


def validate(observed: Configuration | None) -> list[str]:
    """Return why *observed* would let bindings pass without suspension; used if no desired configuration is known."""
    webhook = _by_name(observed).get(_BINDINGS_WEBHOOK) if observed is not None else None
    if webhook is None:
        return ["it is not there" if observed is None else f"webhook {_BINDINGS_WEBHOOK} is missing"]
    completed = {**_DEFAULTS, **webhook}
    wrong = [
        f"webhook {_BINDINGS_WEBHOOK}: {field} is {completed[field]!r}"
        for field, good in (("failurePolicy", "Fail"), ("namespaceSelector", {}), ("objectSelector", {}))
        if completed[field] != good
    ]
    rules = [rule for rule in webhook.get("rules") or () if "CREATE" in rule.get("operations", ())]
    covered = {name for rule in rules if "work.karmada.io" in rule["apiGroups"] for name in rule["resources"]}
    if not covered >= _SUSPENDED_RESOURCES:
        wrong.append(
            f"webhook {_BINDINGS_WEBHOOK}: rules do not cover {', '.join(sorted(_SUSPENDED_RESOURCES - covered))}"
        )
    return [*wrong, *(() if has_ca_bundle(webhook) else (f"webhook {_BINDINGS_WEBHOOK}: caBundle is empty",))]


def _changed_fields(name: str, desired: Webhook, observed: Webhook) -> Iterator[str]:
    wants, has = _compared_fields(desired), _compared_fields(observed)
    for field in sorted({*wants, *has}):
        if wants.get(field) != has.get(field):
            yield f"webhook {name}: {field} is {has.get(field)!r} and should be {wants.get(field)!r}"
    if not has_ca_bundle(observed):
        yield f"webhook {name}: caBundle is empty"


def _compared_fields(webhook: Webhook) -> dict[str, Any]:
    """Return the compared fields, with the defaults of the API server."""
    client = {name: value for name, value in webhook.get("clientConfig", {}).items() if name != "caBundle"}
    return {
        **_DEFAULTS,
        **webhook,
        "clientConfig": client,
        "rules": [{"scope": "*", **rule} for rule in webhook.get("rules") or ()],
    }


def has_ca_bundle(webhook: Webhook) -> bool:
    """Return whether the CA bundle holds a certificate; the webhook itself verifies the chain."""
    try:
        bundle = base64.b64decode(webhook.get("clientConfig", {}).get("caBundle") or "")
    except (binascii.Error, ValueError):
        return False
    return b"-----BEGIN CERTIFICATE-----" in bundle


def _by_name(configuration: Configuration) -> dict[str, Webhook]:
    return {webhook["name"]: webhook for webhook in configuration.get("webhooks") or ()}
