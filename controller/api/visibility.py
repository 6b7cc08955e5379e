"""Wire types of the visibility endpoint: the workloads of one namespace, and why they are pending."""

import msgspec

GROUP = "visibility.volcano-global.io"
API_VERSION = f"{GROUP}/v1alpha1"
RESOURCE = "workloads"


def namespace_path(namespace: str) -> str:
    """Return the path of the workloads of *namespace*."""
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{RESOURCE}"


class VisibleWorkload(msgspec.Struct, rename="camel", frozen=True):
    """One workload of the namespace; position, reason and message are set while it is pending.

    *position* counts from 1 and *of* is the number of pending workloads in its queue, those of other namespaces
    included. *since* is when it was queued.
    """

    kind: str
    name: str
    queue: str
    state: str
    priority: int
    since: str | None
    position: int | None = None
    of: int | None = None
    reason: str = ""
    message: str = ""
    remedy: str = ""
    clusters: tuple[str, ...] = ()


class VisibleQueue(msgspec.Struct, rename="camel", frozen=True):
    """A queue of the namespace's workloads: amounts of the namespace, and of all others together.

    Amounts are quantities by resource. *limit* includes what ancestors allow.
    """

    name: str
    pending: int
    others_pending: int
    allocated: dict[str, str]
    others_allocated: dict[str, str]
    fair_share: dict[str, str]
    limit: dict[str, str]


class VisibleWorkloads(msgspec.Struct, rename="camel", frozen=True):
    """The workloads of a namespace, pending ones first by queue and position; *remaining* were left out.

    *queues* are those of the namespace's workloads that are not finished.
    """

    namespace: str
    items: tuple[VisibleWorkload, ...]
    remaining: int = 0
    queues: tuple[VisibleQueue, ...] = ()
    api_version: str = API_VERSION
    kind: str = "WorkloadList"
