"""Tries changes of objects on an engine and undoes them, so that many changes can be tried on one large state."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from controller.engine.checkpoint import History, roll_back
from controller.engine.engine import Engine
from controller.engine.plan import Plan
from controller.engine.remedies import plan_until_stable
from controller.engine.state.clusters import Cluster
from controller.engine.state.hierarchy import Queue
from controller.engine.state.resources import CPU, MEMORY, MILLI
from controller.engine.state.workloads import Workload, WorkloadState, WorkloadUid

#: Smallest change of an amount, in base units: 100m CPU, 128 Mi of memory, one of everything else.
STEPS: Final = {CPU: 100, MEMORY: 128 * 2**20}


@dataclass(frozen=True, slots=True)
class Edit:
    """The changed objects of one trial, each complete."""

    workloads: tuple[Workload, ...] = ()
    queues: tuple[Queue, ...] = ()
    clusters: tuple[Cluster, ...] = ()


class Trials:
    """Answers whether a workload is admitted after an edit; the engine is the same before and after each question."""

    def __init__(self, engine: Engine, history: History, now: int, plan: Plan) -> None:
        """Use *engine* at *now*: after *plan*, and with its *history* of before that plan.

        Every question is answered for the state before that plan. The engine must not be used for anything else
        between the questions, except for reading.
        """
        self.engine = engine
        self.decides_nothing = not (plan.decisions or engine.policy.reclaim.enabled or engine.policy.preemption.enabled)
        """Whether nothing is admitted or evicted now: more quota or capacity then only helps where it is lacking."""
        self.is_cut = False
        """Whether the last search left out changes, because trials in a state as large as this cost too much."""
        self._history = history
        self._now = now
        # No reason is read between the questions.
        engine.cycle.reason_updates.is_enabled = False
        self._roll_back(plan.originals, ())

    def admits(self, edit: Edit, uid: WorkloadUid) -> bool:
        """Return whether the next cycles admit *uid* after *edit*."""
        engine, now = self.engine, self._now
        originals = {workload.uid: engine.workloads[workload.uid] for workload in edit.workloads}
        queues = [engine.queues[queue.name] for queue in edit.queues]
        for queue in edit.queues:
            engine.queue_changed(queue)
        for cluster in edit.clusters:
            engine.cluster_changed(cluster, now)
        for workload in edit.workloads:
            engine.workload_changed(workload, now)
        try:
            originals = plan_until_stable(engine, now) | originals
            return engine.workloads[uid].state is WorkloadState.ADMITTED
        finally:
            self._roll_back(originals, queues)

    def _roll_back(self, originals: dict[WorkloadUid, Workload], queues: Iterable[Queue]) -> None:
        roll_back(self.engine, queues, originals.values(), self._history, self._now)


def finished(workload: Workload) -> Workload:
    """Return *workload* after it has finished."""
    return replace(workload, state=WorkloadState.FINISHED, admission=None, details=workload.details.without_claims())


def least(admits: Callable[[int], bool], most: int, guess: int = 0) -> int | None:
    """Return an *n* from 1 to *most* that admits while ``n - 1`` does not, ``None`` if *most* does not.

    Zero is known not to admit. Bisection: the smallest one where admission is monotonic in *n*. *guess* is tried first.
    """
    low, high = 0, most
    if 0 < guess < most:
        low, high = (low, guess) if admits(guess) else (guess, most)
        if high == guess and guess > 1:
            low, high = (low, guess - 1) if admits(guess - 1) else (guess - 1, guess)
    if most < 1 or (high == most and not admits(most)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if admits(middle) else (middle, high)
    return high


def step_of(resource: str) -> int:
    """Return the smallest change of *resource*, in base units."""
    return STEPS.get(resource, MILLI)
