"""Judges a simulation: verifies the invariants I1 to I8 on every stored change, from the server's history.

Only the reasons (I8) and the number of plans are read from the controllers. The rules are those of
`tests.rig.invariants`, which judge controllers on a real API server.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence

from localup.karmada.works import work_key
from tests.deterministic import kinds
from tests.deterministic.admissibility import AdmissibilityChecker
from tests.deterministic.clock import EPOCH
from tests.deterministic.objects import Kind, Object
from tests.deterministic.operations import BATCH, CLAIMED, CLASSES, CLUSTERS, HOSTILE, PLACED, QUEUES, SERVICE
from tests.deterministic.propagation import PLACEMENT, PLACEMENTS
from tests.deterministic.system import System, template_name
from tests.deterministic.watches import Change
from tests.rig import history
from tests.rig.admission_order import Admission, find_admissions
from tests.rig.binding_state import BindingState, parse_binding
from tests.rig.hyperjob_invariant import hyperjob_of
from tests.rig.invariants import Evidence, InvariantChecker, immediate_retries
from tests.rig.requests import add, amounts, gang_requests, job_requests

_MOST_PLANS = 500
"""Plans in half a minute, apart from one for each change; with a due time in the past there are 1,500."""
_DELAY_SECONDS = 60
"""A change is judged after this time, when every admission that was decided before it is known."""
_CONFIGURATION_SECONDS = 30
"""A changed configuration is in force after this time."""
_ORDERS_DIFFERENTLY = {"ageing", "advanceReservations", "nodeShapes"}
"""With these options another order is right than by priority and age."""
_JUDGED = {
    "resourcebindings",
    "jobs",
    "batch/jobs",
    "deployments",
    "queues",
    "clusters",
    "priorityclasses",
    "hyperjobs",
    "works",
}
_CAPACITIES = [amounts(capacity) for capacity in CLUSTERS.values()]
_TOTAL = add(*_CAPACITIES)


class Judge:
    """Follows the server of *system*; ``violations`` lists them with their times, ``violated`` is set by the first.

    Without faults the judge is strict; with *faults* decisions may be based on older states, until the audit of the
    caches finds a lost event.
    """

    def __init__(self, system: System, *, faults: bool) -> None:
        self.violations: list[str] = []
        self.has_faults = faults
        self.violated = asyncio.Event()
        self._system = system
        self._admissions: list[Admission] = []
        self._with_failed_writes: set[str] = set()
        self._waiting: deque[history.Change] = deque()
        self._writes_judged = 0
        evidence = Evidence(
            (),
            with_failed_writes=self._with_failed_writes,
            classes=CLASSES,
            max_event_delay=700 if faults else 2.5,
            is_by_priority=self._is_by_priority,
            is_placed_freely=lambda name: not name.startswith((CLAIMED, PLACED, SERVICE, BATCH)),
        )
        self._checker = InvariantChecker(evidence, self._admissions, lag=700 if faults else 6)
        self._ours: Counter[int] = Counter()
        """The writes of each version that the controllers made."""
        self._admissibility = None if faults else AdmissibilityChecker()
        self._take_present()
        system.server.observers.append(self._observe)

    def _is_by_priority(self, begin: float, end: float) -> bool:
        """Return whether between two times the configuration in force ordered by priority and age alone."""
        written = self._system.configurations
        following = [*(at for at, _ in written[1:]), float("inf")]
        return all(
            options.get("queueOrder", "PriorityFirst") == "PriorityFirst"
            and not options.get("reclaim", {}).get("enabled")
            and not _ORDERS_DIFFERENTLY & options.keys()
            for (at, options), until in zip(written, following, strict=True)
            if at <= end and until + _CONFIGURATION_SECONDS >= begin
        )

    def close(self) -> None:
        """Judge the remaining changes and stop."""
        self._system.server.observers.remove(self._observe)
        self._judge(float("inf"))

    def _take_present(self) -> None:
        """Apply the objects that exist already."""
        for kind in self._system.server.kinds:
            if self._admissibility is not None:
                self._admissibility.take_present(kind, self._system.server.objects(kind))
            if _name(kind) in _JUDGED:
                for key, obj in sorted(self._system.server.objects(kind).items()):
                    version = int(obj["metadata"]["resourceVersion"])
                    change = history.Change(version, _name(kind), key, None, obj, self._system.loop.time())
                    list(self._checker.apply(change))

    def _observe(self, change: Change) -> None:
        if _name(change.kind) in _JUDGED and not change.key[1].startswith(HOSTILE):
            at = self._system.loop.time()
            self._waiting.append(
                history.Change(change.version, _name(change.kind), change.key, change.previous, change.obj, at)
            )
            if self._admissibility is not None:
                self._judge_part(change)
                self._report_all(self._admissibility.apply(change, at))

    def _judge_part(self, change: Change) -> None:
        """I5: the policy of a HyperJob's part exists before its Job, so that no other policy selects the Job."""
        if change.kind != kinds.JOBS or change.previous is not None or change.obj is None:
            return
        if hyperjob_of(change.obj) and change.key not in self._system.server.objects(kinds.POLICIES):
            self.report(f"I5 job {change.key[1]} was created before its policy")

    async def follow(self) -> None:
        """Judge continuously until cancelled."""
        while True:
            before = self._plans_and_changes()
            await asyncio.sleep(_DELAY_SECONDS / 2)
            self._judge(self._system.loop.time() - _DELAY_SECONDS)
            plans, changes = (now - then for now, then in zip(self._plans_and_changes(), before, strict=True))
            if plans > _MOST_PLANS + changes:
                self.report(f"I7 {plans} plans in half a minute with {changes} changes")
            if self._system.failures:
                self.violated.set()

    def _plans_and_changes(self) -> tuple[int, int]:
        """Return how many plans have been made, and how often the store has changed."""
        return sum(controller.plans for controller in self._system.controllers), self._system.server.version

    def _judge(self, until: float) -> None:
        self._judge_writes()
        recent = list(self._waiting)
        self._admissions.extend(
            admission
            for admission in find_admissions(recent, EPOCH)
            if admission.revision not in {known.revision for known in self._admissions}
        )
        while self._waiting and self._waiting[0].at <= until:
            change = self._waiting.popleft()
            mine = change.revision in self._ours
            for violation in self._checker.apply(change, by_controller=mine):
                self.report(violation, at=change.at)
        if self._admissibility is not None and until < self._system.loop.time():
            self._report_all(self._admissibility.judge_states(self._checker.usage, until))
        oldest = self._waiting[0].revision if self._waiting else self._system.server.version
        self._admissions[:] = [admission for admission in self._admissions if admission.revision >= oldest - 500]

    def _judge_writes(self) -> None:
        """I7: no write is repeated at once after a rejection, and none changes nothing."""
        writes = self._system.writes[self._writes_judged :]
        self._writes_judged = len(self._system.writes)
        self._with_failed_writes |= (unanswered := self._system.unanswered)
        for violation in immediate_retries(writes):
            self.report(violation)
        for write in writes:
            if not write.done:
                self._with_failed_writes.add(template_name(write.name))
            elif write.verb != "DELETE" and write.revision:
                # A write without an answer is repeated. Where its event was lost, the next leader writes it once more.
                is_repeated = self._ours[write.revision] > int(self.has_faults)
                if is_repeated and template_name(write.name) not in unanswered:
                    self.report(f"I7 {write.verb} of {write.resource} {write.namespace}/{write.name} changed nothing")
                # The HyperJob controller owns the Jobs that it creates.
                if write.resource != "jobs" or write.user == "volcano-global-controller":
                    self._ours[write.revision] += 1

    def report(self, violation: str, *, at: float | None = None) -> None:
        """Record a violation."""
        seconds = self._system.loop.time() if at is None else at
        self.violations.append(f"{seconds:.3f} s: {violation}")
        self.violated.set()

    # -- at rest ---------------------------------------------------------------------

    def unfinished(self) -> Sequence[BindingState]:
        """Return the gated workloads that should finish when faults have ended and capacity has returned."""
        bindings = [parse_binding(obj) for obj in self._system.server.objects(kinds.BINDINGS).values()]
        return [
            binding
            for binding in bindings
            if binding.gated and not binding.is_finished and binding.job[1][: len(HOSTILE)] != HOSTILE
            if self._is_possible(binding) and not self._has_lost_work(binding)
        ]

    def _has_lost_work(self, binding: BindingState) -> bool:
        """Return whether Karmada has placed *binding* again in a cluster while it removed its Work there.

        It creates no other Work until something else of the binding changes.
        """
        template = {"kind": "Job", "namespace": binding.job[0], "name": binding.job[1]}
        works = self._system.server.objects(kinds.WORKS)
        return any(work_key(template, cluster) not in works for cluster in binding.clusters)

    def _is_possible(self, binding: BindingState) -> bool:
        """Return whether a job fits into the empty system as it is after all faults."""
        objects = self._system.server.objects(kinds.JOBS if binding.is_volcano_job else kinds.BATCH_JOBS)
        job = objects.get(binding.job)
        if job is None:
            return False
        requests, gang = job_requests(job), gang_requests(job)
        placement = PLACEMENTS[job["metadata"].get("labels", {}).get(PLACEMENT, "")]
        copies = (placement.get("clusterAffinity") or {}).get("clusterNames", ())
        if copies:
            requests = add(*[requests] * len(copies))
        path = [self._checker.usage.queue(binding)]
        while "parent" in QUEUES.get(path[-1], {}):
            path.append(QUEUES[path[-1]]["parent"])
        limits = [_TOTAL, *(amounts(QUEUES.get(queue, {}).get("capability")) for queue in path)]
        return all(
            requests[name] <= most for limit in limits for name, most in limit.items() if name in requests
        ) and any(all(amount <= capacity.get(name, 0) for name, amount in gang.items()) for capacity in _CAPACITIES)

    def judge_rest(self) -> None:
        """I2, I5, I8: every job has its binding, every HyperJob its parts, and every pending workload a reason."""
        self._judge(float("inf"))
        for violation in self._checker.hyperjobs.unlike_their_split():
            self.report(f"I5 {violation}")
        self._report_all(self._without_binding())
        self._report_all(self._without_reason())

    def _report_all(self, violations: Iterable[str]) -> None:
        for violation in violations:
            self.report(violation)

    def _without_binding(self) -> Iterator[str]:
        bindings = {parse_binding(obj).job for obj in self._system.server.objects(kinds.BINDINGS).values()}
        for key in sorted(self._system.server.objects(kinds.JOBS)):
            if key not in bindings and not key[1].startswith(HOSTILE):
                yield f"I2 job {key[1]} has no binding"

    def _without_reason(self) -> Iterator[str]:
        leader = next((item.controller for item in self._system.controllers if item.leads), None)
        if leader is None or leader.loop.engine is None:
            yield "I4 no controller leads"
            return
        reasons = {str(uid) for uid in leader.loop.engine.last_reasons}
        for obj in self._system.server.objects(kinds.BINDINGS).values():
            binding = parse_binding(obj)
            if binding.gated and binding.suspended and not binding.is_finished and binding.uid not in reasons:
                yield f"I8 {binding.job[1]} is pending without a reason"


def _name(kind: Kind) -> str:
    """Return the plural of a kind, with the group where another kind has it, too."""
    return f"{kind.group}/{kind.plural}" if kind is kinds.BATCH_JOBS else kind.plural


def describe(obj: Object) -> str:
    """Return an object as one line, for reports."""
    binding = parse_binding(obj)
    state = "finished" if binding.is_finished else "suspended" if binding.suspended else "resumed"
    return f"{binding.job[1]} {state} on {','.join(binding.clusters) or 'no cluster'} record {binding.record}"
