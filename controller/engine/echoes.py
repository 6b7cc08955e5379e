"""What is told again of a workload, beside what was known of it."""

from dataclasses import replace

from controller.engine.accounts import same_places
from controller.engine.workloads import State, Workload


def is_echo(before: Workload, workload: Workload) -> bool:
    """Say whether an admitted workload is told again with nothing new that a decision could depend on."""
    return _weight(before) == _weight(workload) and same_places(before, workload)


def as_grown(before: Workload | None, workload: Workload) -> Workload:
    """Return *workload*, judged as one that has grown for as long as it runs on after it had finished (D7)."""
    if before is None or workload.state is not State.ADMITTED or workload.admission is None:
        return workload
    ran_on = before.state is State.FINISHED or (before.has_run_on and before.state is State.ADMITTED)
    return replace(workload, has_run_on=True) if ran_on else workload


def _weight(workload: Workload) -> tuple[object, ...]:
    """Return what decides, beside its charge, whether an admitted workload may be evicted."""
    return (
        workload.state,
        workload.has_aborted,
        workload.priority,
        workload.evictions,
        workload.preserved,
        workload.stays_until,
        workload.has_grown,
    )
