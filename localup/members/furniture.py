"""The node of a member cluster, and the pod that holds what others use there.

Pure.
"""

from typing import Any, Final

from controller.engine.resources import PODS, Resources
from localup.karmada.kinds import Kind
from localup.karmada.objects import Key
from localup.karmada.pods import quantities

NODE: Final = Kind("v1", "Node", "nodes")
POD: Final = Kind("v1", "Pod", "pods")
NODE_NAME: Final = "node"
FOREIGN: Final = Key("kube-system", "foreign-use")


def bare_node() -> dict[str, Any]:
    """Return the node as it is created."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE_NAME}}


def node_status(allocatable: Resources) -> list[dict[str, Any]]:
    """Return the patch that makes the node as large as told, and ready."""
    amounts = quantities(allocatable)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "played"}
    told = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    return [{"op": "add", "path": f"/status/{name}", "value": value} for name, value in told.items()]


def foreign_pod(amounts: Resources) -> dict[str, Any] | None:
    """Return the one pod that holds all that others use, but for the number of their pods; none for nothing."""
    held = quantities({name: amount for name, amount in amounts.items() if name != PODS})
    if not held:
        return None
    container = {"name": "held", "image": "none", "resources": {"requests": held, "limits": held}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": FOREIGN.name, "namespace": FOREIGN.namespace},
        "spec": {"nodeName": NODE_NAME, "containers": [container]},
    }
