"""Encoded entries are decoded unchanged."""

from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from controller.engine.checkpoint import ClusterHistory, History, StarvationTimer
from controller.engine.policy import EvictionPolicy, Policy, Tenant
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.clusters import (
    Affinity,
    Cluster,
    ClusterName,
    Placement,
    Requirement,
    Spread,
    StaticWeight,
    Taint,
    Term,
    Toleration,
)
from controller.engine.state.hierarchy import Queue, QueueName, QueueState
from controller.engine.state.orphans import Orphan, Orphans
from controller.engine.state.workloads import (
    Admission,
    ClusterCharge,
    HyperJobGang,
    Nomination,
    Reservation,
    SchedulingRequirements,
    Workload,
    WorkloadDetails,
    WorkloadState,
    WorkloadUid,
)
from controller.reporting.decision_log import codec as lines_of
from controller.reporting.decision_log.codec import (
    CheckpointEntry,
    ClusterChanged,
    ClusterRemoved,
    DecisionEntry,
    EntryDecoder,
    EntryEncoder,
    Header,
    PlanEntry,
    PolicyChanged,
    QueueChanged,
    QueueRemoved,
    WorkloadChanged,
    WorkloadRemoved,
)

times = st.integers(0, 2**53)
names = st.text(max_size=20)
#: Tenants may ask for more than any machine's integer holds.
amounts = st.dictionaries(names, st.integers(-(10**40), 10**40), max_size=4)
requirements = st.builds(Requirement, names, st.sampled_from(["In", "Exists", "Gt"]), st.tuples(names))
affinities = st.builds(Affinity, st.tuples(names), st.frozensets(names), st.tuples(requirements), st.just(()))
placements = st.builds(
    Placement,
    st.none() | affinities,
    st.just(()) | st.tuples(st.builds(Term, names, affinities, st.tuples(affinities))),
    st.just(()) | st.tuples(st.builds(Toleration, names, st.just("Exists"), names, names)),
    st.just(()) | st.tuples(st.builds(Spread, names, st.integers(0, 9), st.integers(0, 9))),
    st.booleans(),
    st.just(()) | st.tuples(st.builds(StaticWeight, affinities, st.integers(0, 9))),
    st.booleans(),
)
scheduling_requirements = st.builds(
    SchedulingRequirements,
    requests=amounts,
    gang_requests=amounts,
    placement=placements,
    pods=st.lists(amounts, max_size=2).map(tuple),
    replicas=st.integers(0, 10**6),
    excluded_clusters=st.frozensets(names, max_size=2),
    preferred_clusters=st.tuples(names),
)
charges = st.lists(st.builds(ClusterCharge, names, amounts), max_size=2).map(tuple)
admissions = st.builds(
    Admission, amounts, charges, times, st.booleans(), st.booleans(), st.booleans(), st.none() | times
)
refusals = st.builds(
    Refusal, st.sampled_from(Reason), st.none() | names, st.none() | times, queue=names, until=st.none() | times
)
gangs = st.builds(HyperJobGang, names, st.integers(0, 9), st.integers(0, 9))
workloads = st.builds(
    Workload,
    uid=names.map(WorkloadUid),
    namespace=names,
    name=names,
    kind=names,
    queue=names.map(QueueName),
    requirements=scheduling_requirements,
    priority=st.integers(-(2**31), 2**31 - 1),
    created_at=times,
    state=st.sampled_from(WorkloadState),
    admission=st.none() | admissions,
    hold=st.none() | refusals,
    details=st.builds(
        WorkloadDetails,
        gang=st.none() | gangs,
        nomination=st.none() | st.builds(Nomination, names, times, st.integers(0, 9), amounts),
        reservation=st.none() | st.builds(Reservation, times, charges, st.none() | amounts),
        runs_after_finish=st.booleans(),
        last_admission=st.none() | admissions,
    ),
)
clusters = st.builds(
    Cluster,
    names.map(ClusterName),
    labels=st.dictionaries(names, names, max_size=2),
    taints=st.lists(st.builds(Taint, names, names, names), max_size=2).map(tuple),
    allocatable=st.none() | amounts,
    used=amounts,
    grades=st.lists(amounts, max_size=2).map(tuple),
)
queues = st.builds(Queue, names.map(QueueName), capability=amounts, deserved=amounts, state=st.sampled_from(QueueState))
tenants = st.lists(st.builds(Tenant, st.tuples(names), st.tuples(names)), max_size=2).map(tuple)
policies = st.builds(Policy, settle_ms=times, reclaim=st.builds(EvictionPolicy, st.booleans(), times), tenants=tenants)
ended = st.lists(st.tuples(times, amounts), max_size=2).map(tuple)
orphans = st.builds(
    Orphans, st.lists(st.builds(Orphan, names, names, amounts), max_size=2).map(tuple), amounts, amounts, times
)
sites = st.builds(
    ClusterHistory, names, st.none() | clusters, amounts, ended, st.none() | times, st.none(), orphans=orphans
)
memories = st.builds(
    History,
    st.lists(sites, max_size=2).map(tuple),
    st.lists(st.builds(StarvationTimer, names, names, times), max_size=2).map(tuple),
    st.lists(st.tuples(names, times), max_size=2).map(tuple),
    st.lists(st.tuples(names, times), max_size=2).map(tuple),
    st.lists(st.tuples(gangs, times), max_size=2).map(tuple),
    st.none() | times,
)
entries = st.one_of(
    st.builds(Header, policies, times, names, names, st.booleans()),
    st.builds(PolicyChanged, policies),
    st.builds(QueueChanged, queues),
    st.builds(QueueRemoved, names),
    st.builds(ClusterChanged, clusters, times),
    st.builds(ClusterRemoved, names),
    st.builds(WorkloadChanged, workloads, times),
    st.builds(WorkloadRemoved, names, times),
    st.builds(CheckpointEntry, memories, times),
    st.builds(PlanEntry, times, times, st.none() | times, names, times),
    st.builds(DecisionEntry, st.dictionaries(names.filter(lambda name: name != "type"), names | times | st.none())),
)


def every_field(workload: Workload) -> list[object]:
    """Return all fields, because some are excluded from equality."""
    return [getattr(workload, each.name) for each in fields(workload)]


@given(st.lists(entries, max_size=4))
def test_encoded_entries_are_decoded_unchanged(told):
    pen, eye = EntryEncoder(), EntryDecoder()
    lines = [line for entry in told for line in pen.encode(entry)]
    read = [entry for entry in map(eye.decode, lines) if entry is not None]
    assert read == told
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    assert eye.is_intact
    for entry, other in zip(read, told, strict=True):
        if isinstance(entry, WorkloadChanged):
            assert every_field(entry.workload) == every_field(other.workload)


def test_shared_requirements_are_numbered_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(lines_of, "_MAX_REQUIREMENTS", 2)
    pen, eye = EntryEncoder(), EntryDecoder()
    requirements = [SchedulingRequirements({"cpu": each}) for each in range(4)]
    told = [
        WorkloadChanged(Workload(WorkloadUid("u"), "ml", "j", "Job", QueueName("q"), requirements[each]), 1)
        for each in (0, 1, 0, 2, 0, 3, 1, 1)
    ]
    written = [line for each in told for line in pen.encode(each)]
    assert [entry for entry in map(eye.decode, written) if entry is not None] == told
    assert len(pen._requirements) <= 2
    assert len([*pen.encode(told[-1])]) == 1
