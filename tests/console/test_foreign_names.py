"""No page, and none of its data, has a name that its reader may not see."""

import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.history import MomentAnswer
from console.model import Index, Model
from console.reader import MAX_NAMESPACES, Reader
from console.renders import PAGES, Renders
from console.views.decisions import decisions_view
from console.views.forecasts import Forecasts, Start
from console.views.listing import ForbiddenError, NotVisibleError, Query
from console.views.workloads import Change, _visible_changes
from controller.cli.input.snapshot import plan_snapshot
from controller.forecast.run_times import RunTimes
from controller.history.pages import Filters, read_page
from controller.reporting.redaction import ANOTHER_WORKLOAD
from tests.console.consoles import new_model
from tests.draws import draws
from tests.engine import worlds
from tests.history.logs import DEFAULT, Log, moment_at

DECISION_FILTERS = [{}, {"sort": "oldest"}, {"namespace": "two"}, {"q": "job-1"}, {"queue": "q1"}, {"action": "Wait"}]

ROLES = {
    "none": {},
    "tenant": {"namespaces": {"one": True}},
    "other": {"namespaces": {"two": True}},
    "queues": {"namespaces": {"one": True}, "all_queues": True},
    "clusters": {"namespaces": {"one": True}, "all_clusters": True},
    "operator": {"all_workloads": True, "all_queues": True, "all_clusters": True},
}


def new_reader(role: str) -> Reader:
    rights = dict(ROLES[role])
    namespaces = {"one": False, "two": False, **rights.pop("namespaces", {})}
    return Reader(role, namespaces=namespaces, **rights)


def model_of_state(state) -> Model:
    model = new_model()
    model._snapshot = plan_snapshot(model.store, state, worlds.NOW, model.configuration, RunTimes())
    return model


def visible_names(state, reader: Reader) -> set[str]:
    """Return what a reader may read: own workloads, the queues of these with their ancestors, or all of a kind."""
    own = [workload for workload in state.workloads.values() if reader.may_read(workload.namespace)]
    names = {workload.name for workload in own}
    for workload in own:
        # The message about an invalid hierarchy names the parents that the queue has, or lacks.
        queue = workload.queue
        while queue not in names:
            names.add(queue)
            queue = state.queues[queue].parent if queue in state.queues else queue
    return names | (set(state.queues) if reader.all_queues else set())


def paths(state) -> list[tuple[str, Query]]:
    """Return every page, with every object of *state* in its path."""
    pages = [(route, Query()) for route in PAGES if "{" not in route]
    pages += [("/queues/{name}", Query({"name": name})) for name in (*state.queues, "nowhere")]
    pages += [("/clusters/{name}", Query({"name": name})) for name in worlds.CLUSTERS]
    for workload in state.workloads.values():
        path = {"namespace": workload.namespace, "kind": workload.kind, "name": workload.name}
        pages.append(("/workloads/{namespace}/{kind}/{name}", Query(path)))
    pages += [("/decisions", Query(values={"action": "Any", **values})) for values in DECISION_FILTERS]
    uids = [*state.workloads][:3]
    focus = [{"first": one, "second": other} for one in uids for other in uids]
    pages += [
        ("/moment", Query(values={"at": "2026-11-23T14:02", **values})) for values in ({}, {"queue": "q1"}, *focus)
    ]
    return [*pages, ("/queues", Query(values={"below": "q1"})), ("/workloads", Query(values={"namespace": "two"}))]


@draws(100)
@given(
    queues=worlds.queues(),
    clusters=worlds.clusters(),
    workloads=worlds.workloads(most=8),
    policy=worlds.policies(),
    blocker=st.integers(0, 7),
    reserved=st.lists(worlds.advance_reservations(), max_size=3, unique_by=lambda reservation: reservation.name),
)
def test_no_page_names_objects_that_its_reader_may_not_see(queues, clusters, workloads, *, policy, blocker, reserved):
    policy = replace(policy, advance_reservations=tuple(reserved))
    engine = worlds.build(policy, *queues, *clusters, *workloads)
    model = model_of_state(engine)
    decisions, moment = logged(queues, clusters, workloads, policy)
    model.history.add(decisions)
    renders = Renders(model, None, _Analyses(moment))
    other = workloads[blocker % len(workloads)]
    # A workload is expected to start before another one only in a queue that exists.
    hidden = f"a job of queue {other.queue}" if other.queue in engine.queues else ANOTHER_WORKLOAD
    start = Start(worlds.NOW, worlds.NOW, worlds.NOW, ((other.namespace, other.path, hidden),))
    renders.forecasts = Forecasts(
        {workload.uid: start for workload in workloads}, {workload.queue: workload.uid for workload in workloads}
    )
    owners = [reservation.workload for reservation in reserved if reservation.workload is not None]
    # A reservation may name a queue that does not exist; only an operator may read that name.
    owning_queues = {reservation.queue for reservation in reserved if reservation.queue is not None}
    for role in ROLES:
        reader = new_reader(role)
        allowed = visible_names(engine, reader) | {name for namespace, name in owners if reader.may_read(namespace)}
        allowed |= owning_queues if reader.all_workloads else set()
        foreign = {workload.uid for workload in workloads if not reader.may_read(workload.namespace)}
        for route, query in paths(engine):
            reader = new_reader(role)
            try:
                data = PAGES[route].build(renders, query, reader)
            except (NotVisibleError, ForbiddenError):
                continue
            assert len(reader.unknown) <= MAX_NAMESPACES
            text = msgspec.json.encode(data).decode() + renders.html(PAGES[route], route, query, data)
            asked = {*query.path.values(), *query.values.values()}
            assert set(re.findall(r"\bjob-\d+|\bq\d\b", text)) <= allowed | asked, (role, route)
            assert not foreign & set(re.findall(r"\buid-\d+", text)) - asked, (role, route)
            assert reader.all_workloads or "reserved-" not in text, (role, route)


class _Analyses:
    """Knows the moment that was replayed, and nothing else."""

    def __init__(self, moment) -> None:
        self._moment = msgspec.json.encode(MomentAnswer(moment))

    def ask(self, *_: object, user: str) -> None:
        """Ask nothing."""

    fetch = ask

    def cached(self, key: object) -> object:
        """Return the moment."""
        return SimpleNamespace(answer=self._moment) if key[0] == "moment" else None


def logged(queues, clusters, workloads, policy=DEFAULT):
    """Return the history and the moment of a log of the same world."""
    with TemporaryDirectory() as folder:
        log = Log(Path(folder) / "log", now=worlds.NOW, policy=policy)
        log.world(queues, clusters)
        log.submit(*workloads)
        log.plan()
        log.write()
        return read_page(log.path, Filters(), None, 1000).items, moment_at(log.path, log.now)


@pytest.mark.parametrize(
    ("change", "readers"),
    [
        ("job/one/a.spec.tasks[0].replicas=1", {"tenant", "queues", "clusters", "operator"}),
        ("job/one/a.spec.queue=q1", {"tenant", "queues", "clusters", "operator"}),
        ("job/one/a.spec.queue=q2", {"queues", "operator"}),
        ("job/one/a.metadata.annotations.'scheduling.volcano.sh/queue-name'=q2", {"queues", "operator"}),
        ("queue/q1.spec.capability.cpu=4", {"tenant", "queues", "clusters", "operator"}),
        ("queue/q2.spec.capability.cpu=4", {"other", "queues", "operator"}),
        ("cluster/m.status.resourceSummary.allocatable.cpu=4", {"clusters", "operator"}),
        ("resourcebinding/one/a-job.spec.placement.clusterAffinity=null", {"clusters", "operator"}),
        ("job/two/b.status.state.phase=Completed", {"other", "operator"}),
        ("job/one/c.status.state.phase=Completed;job/two/b.status.state.phase=Completed", {"operator"}),
    ],
)
def test_changes_of_other_objects_are_counted_only(change, readers):
    model = SimpleNamespace(index=Index(namespaces={"one": {"q1"}, "two": {"q2"}}), snapshot=None)
    counterfactual = Change(change, "requests", "", "")
    for role in ROLES:
        shown = ((counterfactual,), 0) if role in readers else ((), 1)
        assert _visible_changes([counterfactual], model, new_reader(role)) == shown, role


@given(queues=worlds.queues(), clusters=worlds.clusters(), workloads=worlds.workloads(most=8))
def test_filter_by_a_foreign_name_selects_nothing(queues, clusters, workloads):
    model = model_of_state(worlds.build(worlds.Policy(), *queues, *clusters, *workloads))
    model.history.add(logged(queues, clusters, workloads)[0])
    for foreign in (workload for workload in workloads if workload.namespace == "two"):
        for values in ({"namespace": "two"}, {"q": foreign.name}, {"q": "two"}):
            view = decisions_view(model, Query(values={"action": "Any", **values}), new_reader("tenant"))
            assert {row.namespace for row in view.decisions} <= {"one"}
            assert all(row.name for row in view.decisions)
            assert view.paging.total == sum(row.count for row in view.decisions)
