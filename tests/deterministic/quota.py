"""A FederatedResourceQuota of the tenants' namespace, as Karmada's webhook enforces it on bindings.

It counts the replicas of bindings in all their clusters, so none of a Volcano Job, of which a binding has no replicas.
As in Karmada, a change of what a binding uses is denied while the new sum exceeds the quota, also one that lowers it.
"""

from tests.deterministic import kinds
from tests.deterministic.apiserver import ApiServer
from tests.deterministic.objects import Kind, Object
from tests.rig import requests


class NamespaceQuota:
    """The quota; ``limits`` is empty where there is none."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.limits: requests.Amounts = {}

    def concerns(self, kind: Kind) -> bool:
        """Return whether writes of a kind are reviewed."""
        return bool(self.limits) and kind == kinds.BINDINGS

    def denial(self, old: Object | None, new: Object | None) -> str:
        """Return why the change of a binding is denied, an empty text if it is not."""
        before, after = _usage(old), _usage(new)
        if before == after:
            return ""
        key = (new or old or {"metadata": {"name": ""}})["metadata"]["name"]
        bindings = self._server.objects(kinds.BINDINGS).values()
        others = (_usage(binding) for binding in bindings if binding["metadata"]["name"] != key)
        used = requests.add(after, *others)
        for name, limit in self.limits.items():
            if before.get(name) != after.get(name) and used.get(name, 0) > limit:
                return f"FederatedResourceQuota(team/most) exceeded for resource {name}: requested sum {used[name]}"
        return ""


def _usage(binding: Object | None) -> requests.Amounts:
    """Return the requests of the replicas that a binding has in its clusters."""
    spec = (binding or {}).get("spec") or {}
    replicas = sum(target.get("replicas", 0) for target in spec.get("clusters") or ())
    asked = requests.amounts((spec.get("replicaRequirements") or {}).get("resourceRequest"))
    return {name: amount * replicas for name, amount in asked.items() if replicas}
