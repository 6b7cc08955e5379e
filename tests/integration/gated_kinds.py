"""Configuration that gates kinds other than Volcano Job, and the bindings of their objects."""

import json
from typing import Any

from tests.benchmarks import seed
from tests.rig.harness import Harness

HEAD = "apiVersion: config.volcano-global.io/v1alpha1\nkind: VolcanoGlobalConfiguration\n"
PLURALS = {"Deployment": "deployments", "Job": "jobs"}


def configuration(*kinds: tuple[str, str], **more: Any) -> str:
    """Return the configuration that gates these kinds in addition to Volcano Jobs."""
    rules = [{"apiVersion": version, "kind": kind} for version, kind in kinds]
    return f"{HEAD}integrations: {json.dumps(rules)}\n" + "".join(f"{key}: {json.dumps(more[key])}\n" for key in more)


def folder(harness: Harness, version: str, kind: str) -> str:
    """Return the collection path of a kind."""
    return f"/apis/{version}/namespaces/{harness.karmada.namespace}/{PLURALS[kind]}"


async def bind(harness: Harness, version: str, kind: str, name: str, **spec: Any) -> None:
    """Create the suspended binding of an object."""
    bound = seed.binding(harness.karmada.namespace, name, spec.pop("uid"))
    bound["metadata"]["name"] = f"{name}-{kind.lower()}"
    bound["spec"] |= {"placement": {"clusterAffinity": {}}, "replicas": 1, **spec}
    bound["spec"]["resource"] |= {"apiVersion": version, "kind": kind}
    await harness.karmada.create(harness.karmada.folder("resourcebindings"), bound)
