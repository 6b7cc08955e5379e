"""Changes workloads for tests."""

from dataclasses import fields, replace

from controller.engine.state.workloads import Workload, WorkloadDetails

_DETAILS = frozenset(field.name for field in fields(WorkloadDetails))


def changed(workload: Workload, **changes: object) -> Workload:
    """Return *workload* with other fields or details."""
    details = {name: changes.pop(name) for name in _DETAILS & changes.keys()}
    return replace(workload, **changes, details=replace(workload.details, **details))
