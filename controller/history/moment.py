"""Replays a decision log up to one moment, and describes the state before its plan and what the plan decided."""

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
from msgspec import structs

from controller.api.quantity import format_quantity
from controller.api.visibility import Amounts, LoggedCluster, LoggedDecision, LoggedQueue, LoggedWorkload, Moment
from controller.cache.translate.units import format_resources
from controller.engine.engine import Engine
from controller.engine.fairness.shares import QueueShares
from controller.engine.plan import Admit
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.quota import Quota
from controller.engine.state.resources import EMPTY, Resources, scale
from controller.engine.state.workloads import Workload, WorkloadUid
from controller.history.pages import HistoryError, LogFile, last_plan, open_files
from controller.reporting.current_usage import CurrentUsage, current_usage
from controller.reporting.decision_log.codec import PlanEntry
from controller.reporting.decision_log.records import DecisionRecord, RecordBuilder, record_fields
from controller.reporting.decision_log.replay import DecisionLogError, ReplayedPlan, replay_plan

#: Rows of one answer.
_MAX_QUEUES, _MAX_CLUSTERS, _MAX_PENDING, _MAX_DECISIONS = 1_000, 200, 2_000, 1_000
_PER_QUEUE = 50
#: Bytes of the rows of pending workloads, which may request many resources with long names.
_MAX_PENDING_BYTES = 16 << 20
#: Lines between two looks at the clock.
_LINES = 500


@dataclass(slots=True)
class _StateBefore:
    """What the plan changes, as it was before."""

    current: CurrentUsage | None = None
    order: dict[QueueName, list[Workload]] = field(default_factory=dict)
    settled: dict[QueueName, Resources] = field(default_factory=dict)

    def take(self, engine: Engine, _: PlanEntry) -> None:
        self.current = current_usage(engine)
        self.settled = dict(engine.queue_usage.settled)
        self.order = {queue: list(engine.pending_workloads(queue)) for queue in engine.queues_with_pending()}


class LoggedPlan(NamedTuple):
    """A plan of the log: the beginning of its file, and its number."""

    began: int
    number: int


def find_plan(path: Path, at: int) -> LoggedPlan:
    """Return the last plan at or before *at*; raise `HistoryError` without one."""
    with open_files(path) as files:
        # A file may begin with a plan that is later than the moment, as after a restart.
        for file in reversed([file for file in files if file.began <= at][-2:]):
            number = last_plan(file, at)
            if number is not None:
                return LoggedPlan(file.began, number)
        if files:
            raise HistoryError("the log of this replica has no plan at or before that time")
    raise HistoryError("there is no decision log yet")


def read_moment(path: Path, plan: LoggedPlan, focus: Collection[str], *, seconds: float) -> Moment:
    """Return *plan* with the pending workloads *focus* (uids) among its rows.

    Raises `HistoryError` if its file was deleted, or the replay takes more than *seconds* of processor time.
    """
    with open_files(path) as files:
        for file in files:
            if file.began == plan.began:
                file.lines.seek(0)
                return _replayed(file, plan.number, focus, seconds)
    raise HistoryError("the file of that time has just been deleted")


def _replayed(file: LogFile, number: int, focus: Collection[str], seconds: float) -> Moment:
    before = _StateBefore()
    try:
        replayed = replay_plan(_limited(file.lines, seconds), number, before.take)
    except DecisionLogError as error:
        raise HistoryError(f"the log cannot be replayed up to that time: {error}") from error
    if before.current is None:
        raise HistoryError("the log cannot be replayed up to that time")
    return _Describer(file, replayed, before, before.current).moment(focus)


def _limited(lines: BinaryIO, seconds: float) -> Iterator[bytes]:
    ends_at = time.thread_time() + seconds
    for number, line in enumerate(lines):
        if number % _LINES == 0 and time.thread_time() > ends_at:
            raise HistoryError(f"the replay up to that time takes more than {seconds:g} s of processor time")
        yield line


class _Describer:
    """Describes one replayed plan."""

    def __init__(self, file: LogFile, replayed: ReplayedPlan, before: _StateBefore, current: CurrentUsage) -> None:
        self._file = file
        self._engine, self._entry = replayed.engine, replayed.entry
        self._replayed = replayed
        self._before = before
        self._current = current
        self._builder = RecordBuilder(replayed.engine)
        self._omitted = 0

    def moment(self, focus: Collection[str]) -> Moment:
        decided = [self._decision(record) for record in self._builder.plan_records(self._replayed.plan)]
        policy = self._engine.policy
        decisions = {decision.uid: decision for decision in reversed(decided)}
        pending = tuple(self._pending(decisions, focus, self._borrowing(focus)))
        return Moment(
            identity=self._file.identity,
            version=self._file.version,
            at=self._entry.now,
            plan=self._entry.number,
            revision=self._entry.revision,
            queue_order=policy.queue_order,
            tenant_fairness=policy.tenant_fairness,
            is_intact=self._replayed.is_intact,
            queues=tuple(self._queues()),
            clusters=tuple(self._clusters()),
            pending=pending,
            decisions=tuple(decided[:_MAX_DECISIONS]),
            omitted=self._omitted + max(len(decided) - _MAX_DECISIONS, 0),
        )

    def _decision(self, record: DecisionRecord) -> LoggedDecision:
        fields = record_fields(record, self._entry.number, self._entry.revision)
        return msgspec.convert({**fields, "at": self._entry.now}, LoggedDecision)

    def _queues(self) -> Iterator[LoggedQueue]:
        shares = self._engine.queue_shares
        if shares is None:
            return
        nodes, current, settled = shares.quota.tree.nodes, self._current, self._settled(shares)
        names = sorted({*nodes, *self._engine.queues})
        self._omitted += max(len(names) - _MAX_QUEUES, 0)
        # Those with pending workloads first, where not all fit.
        chosen = sorted(names, key=lambda name: (-current.pending.get(name, 0), name))[:_MAX_QUEUES]
        for name in sorted(chosen):
            node = nodes.get(name)
            queue = node.queue if node is not None else self._engine.queues[name]
            used = current.queues.get(name, {})
            is_infinite, share = (
                shares.usage_ratio_with(name, settled.allocated[name]) if node is not None else (True, 0)
            )
            limit = shares.quota.limits[name].limit if node is not None else {}
            fair = shares.fair_shares.get(name, {})
            yield LoggedQueue(
                name=name,
                path=tuple(ancestor.name for ancestor in reversed(list(node.path()))) if node is not None else (),
                weight=queue.weight,
                priority=queue.priority,
                pending=current.pending.get(name, 0),
                admitted=current.admitted.get(name, 0),
                allocated=_amounts(used),
                fair_share={resource: format_quantity(resource, amount) for resource, amount in sorted(fair.items())},
                limit=_amounts(limit),
                share=None if is_infinite else round(float(share), 3),
            )

    def _settled(self, shares: QueueShares) -> Quota:
        """Return settled usage before the plan."""
        return Quota(shares.quota.tree, shares.quota.limits, self._before.settled)

    def _borrowing(self, focus: Collection[str]) -> set[str]:
        """Return those of *focus* that would have borrowed when the first of them was admitted.

        Empty where these do not come after the others (O3).
        """
        shares, plan = self._engine.queue_shares, self._replayed.plan
        if shares is None or not self._engine.policy.serves_fair_shares_first:
            return set()
        usage = self._settled(shares)
        nodes, root = usage.tree.nodes, usage.tree.root
        for decision in plan.decisions:
            workload = decision.workload
            if isinstance(decision, Admit) and workload.uid in focus:
                break
            if not isinstance(decision, Admit) and workload.admission is not None:
                usage.add_usage(nodes.get(workload.queue, root), scale(workload.admission.charge, -1))
            elif isinstance(decision, Admit) and workload.nomination is None:
                # The charge of a nominated workload is part of settled usage.
                usage.add_usage(nodes.get(workload.queue, root), decision.charge)
        charges = {decision.workload.uid: decision.charge for decision in plan.decisions if isinstance(decision, Admit)}
        return {
            workload.uid
            for queue, order in self._before.order.items()
            for workload in order
            if workload.uid in focus and queue in nodes
            if shares.borrows(nodes[queue], charges.get(workload.uid, self._pending_charge(workload.uid)), usage)
        }

    def _pending_charge(self, uid: WorkloadUid) -> Resources:
        pending = self._engine.pending
        return pending.class_of(uid).charge if uid in pending else EMPTY

    def _clusters(self) -> Iterator[LoggedCluster]:
        clusters = sorted(self._current.clusters, key=lambda state: state.name)
        self._omitted += max(len(clusters) - _MAX_CLUSTERS, 0)
        for state in clusters[:_MAX_CLUSTERS]:
            yield LoggedCluster(
                state.name,
                self._current.admitted_on.get(state.name, 0),
                _amounts(state.charged),
                _amounts(state.external_usage),
                _amounts(state.allocatable),
            )

    def _pending(
        self, decided: dict[str, LoggedDecision], focus: Collection[str], borrowing: Collection[str]
    ) -> Iterator[LoggedWorkload]:
        order, known = self._before.order, self._engine.queues
        # Workloads may name any number of queues that do not exist.
        shown = sorted(order, key=lambda queue: (queue not in known, queue))[:_MAX_PENDING]
        count = max(len(shown), 1)
        limits = dict.fromkeys(shown, (min(_MAX_PENDING // count, _PER_QUEUE), _MAX_PENDING_BYTES // count))
        for queue in sorted(order):
            most, left = limits.get(queue, (0, 0))
            for position, workload in enumerate(order[queue], start=1):
                is_wanted = workload.uid in decided or workload.uid in focus
                if is_wanted or position <= most:
                    row = self._row(queue, position, workload, decided.get(workload.uid))
                    left -= len(msgspec.json.encode(row))
                    if is_wanted or left >= 0:
                        yield structs.replace(row, borrows=workload.uid in borrowing)
                        continue
                self._omitted += 1

    def _row(
        self, queue: QueueName, position: int, workload: Workload, decided: LoggedDecision | None
    ) -> LoggedWorkload:
        refusal = self._engine.refusal(WorkloadUid(workload.uid))
        if decided is None and refusal is not None:
            now_at = self._engine.position(self._engine.workloads[workload.uid])
            decided = self._decision(self._builder.pending_record(workload, refusal, now_at))
        return LoggedWorkload(
            uid=workload.uid,
            kind=workload.kind,
            namespace=workload.namespace,
            name=workload.name,
            queue=queue,
            position=position,
            priority=workload.priority,
            since=workload.created_at,
            requests=_amounts(workload.requirements.requests),
            decision=decided,
        )


def _amounts(amounts: Resources) -> Amounts:
    return format_resources({name: amount for name, amount in sorted(amounts.items()) if amount > 0})
