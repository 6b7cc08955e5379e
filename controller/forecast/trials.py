"""Tries changes of objects on an engine and undoes them, so that many changes can be tried on one large state."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from controller.engine.checkpoint import History, roll_back
from controller.engine.engine import Engine
from controller.engine.state.clusters import Cluster
from controller.engine.state.hierarchy import Queue
from controller.engine.state.workloads import Workload, WorkloadState, WorkloadUid

#: Maximum number of plans of one trial, until nothing more is decided.
_MAX_PLANS: Final = 4


@dataclass(frozen=True, slots=True)
class Edit:
    """The changed objects of one trial, each complete."""

    workloads: tuple[Workload, ...] = ()
    queues: tuple[Queue, ...] = ()
    clusters: tuple[Cluster, ...] = ()


class Trials:
    """Answers whether a workload is admitted after an edit; the engine is the same before and after each question."""

    def __init__(self, engine: Engine, history: History, now: int, before: Iterable[Workload] = ()) -> None:
        """Use *engine* at *now*: with *history* of before its last plan, and *before*, what that plan changed.

        Every question is answered for the state before that plan. The engine must not be used for anything else
        between the questions, except for reading.
        """
        self.engine = engine
        self.count = 0
        """How many edits were tried."""
        self._history = history
        self._now = now
        self._roll_back({workload.uid: workload for workload in before}, ())

    def admits(self, edit: Edit, uid: WorkloadUid) -> bool:
        """Return whether the next cycles admit *uid* after *edit*."""
        with self._planned(edit) as engine:
            return engine.workloads[uid].state is WorkloadState.ADMITTED

    @contextmanager
    def _planned(self, edit: Edit) -> Iterator[Engine]:
        engine, now = self.engine, self._now
        self.count += 1
        originals = {workload.uid: engine.workloads[workload.uid] for workload in edit.workloads}
        queues = [engine.queues[queue.name] for queue in edit.queues]
        for queue in edit.queues:
            engine.queue_changed(queue)
        for cluster in edit.clusters:
            engine.cluster_changed(cluster, now)
        for workload in edit.workloads:
            engine.workload_changed(workload, now)
        try:
            for _ in range(_MAX_PLANS):
                plan = engine.plan(now)
                for change in (*plan.decisions, *plan.record_updates):
                    originals.setdefault(change.workload.uid, change.workload)
                if not plan.decisions:
                    break
            yield engine
        finally:
            self._roll_back(originals, queues)

    def _roll_back(self, originals: dict[WorkloadUid, Workload], queues: Iterable[Queue]) -> None:
        roll_back(self.engine, queues, originals.values(), self._history, self._now)


def finished(workload: Workload) -> Workload:
    """Return *workload* after it has finished."""
    return replace(workload, state=WorkloadState.FINISHED, admission=None, nomination=None, reservation=None)
