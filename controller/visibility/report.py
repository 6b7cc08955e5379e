"""Describes the workloads of one namespace to a reader of that namespace, without names of other workloads.

Pure. Other workloads are part of the position, the length and the usage of the queue only.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import UNSET, structs

from controller.api.quantity import format_quantity
from controller.api.visibility import VisibleQueue, VisibleWorkload
from controller.cache.translate.units import format_resources, format_time
from controller.engine.engine import Engine
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.resources import PODS
from controller.engine.state.workloads import Workload, WorkloadState, WorkloadUid
from controller.reporting.messages import NOT_INCLUDED, pending_message, remedy_message
from controller.reporting.redaction import redacted_refusal, same_namespace
from controller.visibility.scan import NamespaceUsage, Scan

#: Queues in one answer, which takes memory until its caller has read it.
MAX_QUEUES = 100


def workloads_of(engine: Engine, uids: Iterable[WorkloadUid], *, kind: str = "", name: str = "") -> list[Workload]:
    """Return those of *uids* that exist, all or those of a kind or name, in the same order."""
    return [
        workload
        for workload in map(engine.workloads.get, uids)
        if workload is not None and name in {"", workload.name} and kind in {"", workload.kind}
    ]


def queues_of(engine: Engine, namespace_usage: Mapping[QueueName, NamespaceUsage]) -> Iterator[VisibleQueue]:
    """Yield the queues of a namespace by name, with its usage of them and that of all others together.

    Of very many they are those with the most pending workloads of the namespace.
    """
    shares = engine.queue_shares
    if shares is None:
        return
    used = {
        name: own
        for name, own in namespace_usage.items()
        if name in shares.quota.limits and (own.pending or own.allocated)
    }
    for name in sorted(sorted(used, key=lambda name: (-used[name].pending, name))[:MAX_QUEUES]):
        own = used[name]
        usage, fair_share, limit = (
            engine.current_usage.get(name, {}),
            shares.fair_shares.get(name, {}),
            shares.quota.limits[name].limit,
        )
        resources = sorted({*usage, *fair_share, *own.allocated} - {PODS})
        pending = engine.pending_count(name)
        # The usage of the namespace may be a second old.
        own_usage = {resource: min(own.allocated.get(resource, 0), usage.get(resource, 0)) for resource in resources}
        others = {resource: usage.get(resource, 0) - own_usage[resource] for resource in resources}
        yield VisibleQueue(
            name=name,
            pending=min(own.pending, pending),
            others_pending=max(pending - own.pending, 0),
            allocated=format_resources(own_usage),
            others_allocated=format_resources(others),
            fair_share={resource: format_quantity(resource, fair_share.get(resource, 0)) for resource in resources},
            limit=format_resources({resource: max(limit[resource], 0) for resource in resources if resource in limit}),
        )


def describe(engine: Engine, workload: Workload, scan: Scan) -> VisibleWorkload:
    """Return what a reader of its namespace may know of *workload*; *scan* is one of *engine*."""
    admission = workload.admission if workload.state is WorkloadState.ADMITTED else None
    shown = VisibleWorkload(
        kind=workload.kind,
        group=workload.requirements.api.group,
        name=workload.name,
        queue=workload.queue,
        state=workload.state,
        priority=workload.priority,
        since=format_time(workload.created_at) if workload.created_at else None,
        clusters=tuple(charge.cluster for charge in admission.cluster_charges) if admission is not None else (),
    )
    refusal = engine.refusal(workload.uid)
    if refusal is None:
        return shown
    visible = redacted_refusal(refusal, same_namespace(workload.namespace))
    return structs.replace(
        shown,
        position=scan.position(engine, workload),
        of=engine.pending_count(workload.queue),
        raised_priority=UNSET if (raised := engine.raised_priority(workload)) is None else raised,
        reason=visible.reason,
        message=pending_message(visible),
        # Tenants read this from `explain job`, which has no more for them.
        remedy=remedy_message(visible, NOT_INCLUDED),
    )
