"""Nodes of a member cluster, and pods for external usage."""

from typing import Any, Final

from controller.engine.state.resources import PODS, Resources
from localup.karmada.kinds import Kind
from localup.karmada.objects import Key
from localup.karmada.pods import quantities

NODE: Final = Kind("v1", "Node", "nodes")
POD: Final = Kind("v1", "Pod", "pods")
NODE_NAME: Final = "node"
EXTERNAL_USAGE_POD: Final = Key("kube-system", "external-usage")


def node_name(number: int) -> str:
    """Return the name of node *number*."""
    return f"{NODE_NAME}-{number}" if number else NODE_NAME


def external_usage_key(number: int) -> Key:
    """Return the key of the pod for external usage on node *number*."""
    return Key(
        EXTERNAL_USAGE_POD.namespace, f"{EXTERNAL_USAGE_POD.name}-{number}" if number else EXTERNAL_USAGE_POD.name
    )


def new_node(number: int = 0) -> dict[str, Any]:
    """Return a new node."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name(number)}}


def node_status(allocatable: Resources) -> list[dict[str, Any]]:
    """Return the JSON Patch that sets capacity and readiness of a node."""
    amounts = quantities(allocatable)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fake kubelet is ready"}
    updated = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    return [{"op": "add", "path": f"/status/{name}", "value": value} for name, value in updated.items()]


def external_usage_pod(amounts: Resources, number: int = 0) -> dict[str, Any] | None:
    """Return the pod for external usage on a node; ``None`` without usage. The number of pods is ignored."""
    held = quantities({name: amount for name, amount in amounts.items() if name != PODS})
    if not held:
        return None
    container = {"name": "held", "image": "none", "resources": {"requests": held, "limits": held}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": external_usage_key(number).name, "namespace": EXTERNAL_USAGE_POD.namespace},
        "spec": {"nodeName": node_name(number), "containers": [container]},
    }
